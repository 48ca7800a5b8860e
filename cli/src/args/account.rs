//! `fdn list`, `fdn tenant`, `fdn member`, `fdn user`, `fdn token`, `fdn audit`: who may do what, and who did.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use fdn_core::account::{NewNetworkRole, TenantRef};
use fdn_core::{ApiTokenId, DurationMs, Right, TenantName, TenantRole, UserName};

use super::{ConnectArgs, DeleteTenantArgs, DeleteUserArgs, OutputArgs, ShowArgs, TenantLimitArgs};

/// Arguments of `fdn list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only the apps of this tenant: its name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Only apps with these labels: KEY or KEY=VALUE, several with commas between them
    #[arg(long, value_name = "LABELS")]
    pub label: Option<String>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn tenant`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct TenantArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TenantCommand,
}

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Make a tenant
    Create(CreateTenantArgs),
    /// List the tenants
    List(ShowArgs),
    /// Show a tenant and its members
    Describe(OneTenantArgs),
    /// Give a tenant another name
    Rename(RenameTenantArgs),
    /// Let a tenant's members only look, and gateways refuse calls of its apps
    Suspend(OneTenantArgs),
    /// Let a suspended tenant's members do what their roles say, and serve its apps again
    Resume(OneTenantArgs),
    /// Set how much a tenant may store
    Limit(TenantLimitArgs),
    /// Delete a tenant; its bills stay
    Delete(DeleteTenantArgs),
}

/// Arguments of `fdn tenant create`.
#[derive(Debug, Args)]
pub struct CreateTenantArgs {
    /// The tenant's name
    pub name: TenantName,
    /// Its first owner
    #[arg(long, value_name = "USER")]
    pub owner: Option<UserName>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of the commands about one tenant.
#[derive(Debug, Args)]
pub struct OneTenantArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn tenant rename`.
#[derive(Debug, Args)]
pub struct RenameTenantArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The new name
    pub name: TenantName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn member`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct MemberArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MemberCommand,
}

/// What to do with members.
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Add a user to a tenant, or change a member's role
    Set(PutMemberArgs),
    /// List a tenant's members
    List(OneTenantArgs),
    /// Remove a member from a tenant
    Remove(RemoveMemberArgs),
}

/// Arguments of `fdn member set`.
#[derive(Debug, Args)]
pub struct PutMemberArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The user
    pub user: UserName,
    /// What the user may do: owner, developer or viewer
    pub role: TenantRole,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn member remove`.
#[derive(Debug, Args)]
pub struct RemoveMemberArgs {
    /// The tenant: its name or id
    pub tenant: TenantRef,
    /// The user
    pub user: UserName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn user`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct UserArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: UserCommand,
}

/// What to do with users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user; the password is asked for, or read from standard input
    Create(CreateUserArgs),
    /// Invite a user, who chooses the password: prints a link that is good once
    Invite(InviteUserArgs),
    /// List the users
    List(ShowArgs),
    /// Give or take a role in the network
    Role(UserRoleArgs),
    /// Let a user do nothing at all: sessions and API tokens end at once
    Disable(OneUserArgs),
    /// Let a disabled user log in again
    Enable(OneUserArgs),
    /// Delete a user with memberships, sessions and API tokens
    Delete(DeleteUserArgs),
    /// Set a password, one's own or (as an admin) somebody's
    Password(PasswordArgs),
}

/// A role in the network, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// Everything.
    Admin,
    /// Machines.
    Operator,
    /// None.
    None,
}

impl From<RoleArg> for NewNetworkRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Admin => Self::Admin,
            RoleArg::Operator => Self::Operator,
            RoleArg::None => Self::None,
        }
    }
}

/// Arguments of `fdn user create`.
#[derive(Debug, Args)]
pub struct CreateUserArgs {
    /// The user's name
    pub name: UserName,
    /// A role in the network: admin (everything) or operator (machines)
    #[arg(long, value_enum, value_name = "ROLE", default_value = "none")]
    pub network_role: RoleArg,
    /// File holding the password
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// Without a password: the first login with the identity provider under this name becomes this user
    #[arg(long, conflicts_with = "password_file")]
    pub oidc: bool,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn user invite`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fdn user invite ann > ann.link
  fdn login https://fdn.example.org --invitation-file ann.link")]
pub struct InviteUserArgs {
    /// The user's name; to invite the same user again ends the last invitation
    pub name: UserName,
    /// A role in the network: admin (everything) or operator (machines)
    #[arg(long, value_enum, value_name = "ROLE", default_value = "none")]
    pub network_role: RoleArg,
    /// How long the invitation is good for
    #[arg(long, value_name = "DURATION", default_value = "72h")]
    pub ttl: DurationMs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn user role`.
#[derive(Debug, Args)]
pub struct UserRoleArgs {
    /// The user
    pub name: UserName,
    /// The role
    #[arg(value_enum)]
    pub role: RoleArg,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of the commands about one user.
#[derive(Debug, Args)]
pub struct OneUserArgs {
    /// The user
    pub name: UserName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn user password`.
#[derive(Debug, Args)]
pub struct PasswordArgs {
    /// Whose; without it, one's own, for which the present password is needed too
    pub name: Option<UserName>,
    /// File holding the new password; without it, it is asked for, or read from standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// File holding the present password, for one's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "name")]
    pub current_file: Option<PathBuf>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn token`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ApiTokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ApiTokenCommand,
}

/// What to do with API tokens.
#[derive(Debug, Subcommand)]
pub enum ApiTokenCommand {
    /// Make an API token for a tool; it is shown once
    Create(CreateApiTokenArgs),
    /// List one's own API tokens
    List(ShowArgs),
    /// Take API tokens back
    Revoke(RevokeApiTokenArgs),
}

/// Arguments of `fdn token create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fdn token create ci --scope look --scope deploy --tenant shop --ttl 720h > ci.token
  FDN_TOKEN_FILE=ci.token fdn deploy hello hello.wasm")]
pub struct CreateApiTokenArgs {
    /// What it is for
    pub name: String,
    /// What it may do, such as look or deploy; may be given several times
    #[arg(long = "scope", value_name = "RIGHT", required = true)]
    pub scopes: Vec<Right>,
    /// The only tenant in which it counts
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// How long it is good for
    #[arg(long, value_name = "DURATION", default_value = "720h")]
    pub ttl: DurationMs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn token revoke`.
#[derive(Debug, Args)]
pub struct RevokeApiTokenArgs {
    /// The tokens' ids
    #[arg(required = true)]
    pub ids: Vec<ApiTokenId>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// By this user, node or join token
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Of this action, such as deploy
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// On this subject, such as app/hello
    #[arg(long, value_name = "SUBJECT")]
    pub subject: Option<String>,
    /// The last entries of this time, such as 24h
    #[arg(long, value_name = "DURATION")]
    pub since: Option<DurationMs>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
