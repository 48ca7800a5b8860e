//! `fdn tenant` and `fdn member`.

use fdn_core::Timestamp;
use fdn_core::account::{CreateTenant, MemberInfo, PutMember, TenantInfo, TenantRef, UpdateTenant};
use fdn_core::repository::StorageLimit;
use serde::Serialize;

use super::client;
use super::page::rows;
use crate::args::{
    ConnectArgs, DeleteTenantArgs, MemberCommand, OneTenantArgs, OutputArgs, PutMemberArgs,
    RemoveMemberArgs, TenantCommand, TenantLimitArgs,
};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Format, Listing, Report, Row, age, indented, size, table, time};

/// Runs `fdn tenant`.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &TenantCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let suspend = |suspended| UpdateTenant {
        suspended: Some(suspended),
        ..UpdateTenant::default()
    };
    match command {
        TenantCommand::Create(args) => {
            let request = CreateTenant {
                name: args.name.clone(),
                owner: args.owner.clone(),
            };
            let made = client(&args.connect, env)?.create_tenant(&request).await?;
            let said = format!("made tenant {} ({})", made.name, made.id);
            done(args.output, made, &said, console)
        }
        TenantCommand::List(args) => {
            let rows = client(&args.connect, env)?.tenants().await?;
            list(args.output, &rows, "you are a member of no tenant", console)
        }
        TenantCommand::Describe(args) => describe(args, env, console).await,
        TenantCommand::Rename(args) => {
            let request = UpdateTenant {
                name: Some(args.name.clone()),
                ..UpdateTenant::default()
            };
            let said = format!("{} is now {}", args.tenant, args.name);
            change(
                &args.tenant,
                &request,
                (args.output, &args.connect),
                env,
                console,
                &said,
            )
            .await
        }
        TenantCommand::Suspend(args) => {
            let said = format!("members of {} may only look now", args.tenant);
            let how = (args.output, &args.connect);
            change(&args.tenant, &suspend(true), how, env, console, &said).await
        }
        TenantCommand::Resume(args) => {
            let said = format!("members of {} may do what their roles say", args.tenant);
            let how = (args.output, &args.connect);
            change(&args.tenant, &suspend(false), how, env, console, &said).await
        }
        TenantCommand::Limit(args) => limit(args, env, console).await,
        TenantCommand::Delete(args) => delete(args, env, console).await,
    }
}

async fn limit(
    args: &TenantLimitArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = UpdateTenant {
        storage: Some(StorageLimit {
            bytes: args.bytes,
            versions: args.versions,
        }),
        ..UpdateTenant::default()
    };
    let client = client(&args.connect, env)?;
    let info = client.update_tenant(&args.tenant, &request).await?;
    let said = format!("{}: {}", info.name, stored(&info));
    done(args.output, info, &said, console)
}

async fn delete(
    args: &DeleteTenantArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    if !args.yes {
        let with = if args.force { " with all its apps" } else { "" };
        let question = format!("delete tenant {}{with} at {}?", args.tenant, client.place());
        input::confirm(console, &question)?;
    }
    client.delete_tenant(&args.tenant, args.force).await?;
    console.line(&format!("deleted tenant {}", args.tenant))
}

/// The storage that a tenant uses, and its limits.
fn stored(info: &TenantInfo) -> String {
    let used = &info.storage;
    let whose = if used.own_limit {
        ", limits of its own"
    } else {
        ""
    };
    format!(
        "{} of {}, {} of {} versions{whose}",
        size(used.bytes),
        size(used.bytes_limit),
        used.versions,
        used.versions_limit
    )
}

async fn change(
    tenant: &TenantRef,
    request: &UpdateTenant,
    (output, connect): (OutputArgs, &ConnectArgs),
    env: &Environment,
    console: &mut Console,
    said: &str,
) -> Result<(), CliError> {
    let info = client(connect, env)?.update_tenant(tenant, request).await?;
    done(output, info, said, console)
}

/// Reports what was done, or prints the new state.
pub(super) fn done<T: Row + Serialize>(
    output: OutputArgs,
    value: T,
    said: &str,
    console: &mut Console,
) -> Result<(), CliError> {
    match output.output {
        Format::Table => console.line(said),
        _ => list(output, &[value], "", console),
    }
}

/// Prints rows.
pub(super) fn list<T: Row + Serialize>(
    output: OutputArgs,
    rows: &[T],
    nothing: &'static str,
    console: &mut Console,
) -> Result<(), CliError> {
    let now = fdn_service::now();
    console.report(output.output, &Listing { rows, nothing, now })
}

async fn describe(
    args: &OneTenantArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let described = TenantReport {
        tenant: client.tenant(&args.tenant).await?,
        members: client.members(&args.tenant).await?,
        now: fdn_service::now(),
    };
    console.report(args.output.output, &described)
}

/// A tenant and its members in text form.
#[derive(Clone, Debug, Serialize)]
pub struct TenantReport {
    /// The tenant.
    pub tenant: TenantInfo,
    /// Its members.
    pub members: Vec<MemberInfo>,
    /// The current time, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

impl Report for TenantReport {
    fn text(&self, wide: bool) -> String {
        let info = &self.tenant;
        let mut text = table(
            &[],
            rows([
                ("tenant", info.name.to_string()),
                ("id", info.id.to_string()),
                ("state", state(info)),
                ("apps", info.apps.to_string()),
                ("stored", stored(info)),
                ("signatures", info.signature_policy.as_str().to_owned()),
                ("made", time(info.created_at)),
            ]),
        );
        let members = Listing {
            rows: &self.members,
            nothing: "none; add one: fdn member set TENANT USER ROLE",
            now: self.now,
        };
        text.push_str(&format!("\nmembers\n{}", indented(&members.text(wide), 2)));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.tenant.name.to_string()]
    }
}

fn state(info: &TenantInfo) -> String {
    match (info.deleted_at, info.suspended_at) {
        (Some(_), _) => "deleted",
        (None, Some(_)) => "suspended",
        (None, None) => "active",
    }
    .to_owned()
}

impl Row for TenantInfo {
    const COLUMNS: &'static [&'static str] = &[
        "NAME",
        "STATE",
        "MEMBERS",
        "APPS",
        "STORED",
        "AGE",
        "ID",
        "LIMIT",
        "VERSIONS",
        "SIGNATURES",
    ];
    const NARROW: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            state(self),
            self.members.to_string(),
            self.apps.to_string(),
            size(self.storage.bytes),
            age(self.created_at, now),
            self.id.to_string(),
            size(self.storage.bytes_limit),
            format!("{}/{}", self.storage.versions, self.storage.versions_limit),
            self.signature_policy.as_str().to_owned(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

/// Runs `fdn member`.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn members(
    command: &MemberCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        MemberCommand::Set(args) => put(args, env, console).await,
        MemberCommand::List(args) => {
            let rows = client(&args.connect, env)?.members(&args.tenant).await?;
            list(args.output, &rows, "there is no member", console)
        }
        MemberCommand::Remove(args) => remove(args, env, console).await,
    }
}

async fn put(
    args: &PutMemberArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = PutMember { role: args.role };
    let client = client(&args.connect, env)?;
    let info = client
        .put_member(&args.tenant, &args.user, &request)
        .await?;
    let said = format!("{} is {} in {}", info.user, info.role, args.tenant);
    done(args.output, info, &said, console)
}

async fn remove(
    args: &RemoveMemberArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    client.remove_member(&args.tenant, &args.user).await?;
    console.line(&format!("removed {} from {}", args.user, args.tenant))
}

impl Row for MemberInfo {
    const COLUMNS: &'static [&'static str] = &["USER", "ROLE", "AGE", "BY"];
    const NARROW: usize = 3;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.user.to_string(),
            self.role.to_string(),
            age(self.created_at, now),
            self.created_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.user.to_string()
    }
}
