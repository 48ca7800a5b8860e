//! Rights, the roles that include them, and where each right applies.
//!
//! | right | counts | owner | developer | viewer | operator | admin |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `own-account` | everywhere | yes | yes | yes | yes | yes |
//! | `look-network` | everywhere | yes | yes | yes | yes | yes |
//! | `look` | in a tenant | yes | yes | yes | | yes |
//! | `deploy` | in a tenant | yes | yes | | | yes |
//! | `run-jobs` | in a tenant | yes | yes | | | yes |
//! | `manage-secrets` | in a tenant | yes | yes | | | yes |
//! | `manage-records` | in a tenant | yes | yes | | yes | yes |
//! | `manage-members` | in a tenant | yes | | | | yes |
//! | `manage-signing` | in a tenant | yes | | | | yes |
//! | `read-billing` | in a tenant | yes | | | | yes |
//! | `manage-budgets` | in a tenant | yes | | | | yes |
//! | `read-audit` | in a tenant | yes | | | | yes |
//! | `look-machines` | in the network | | | | yes | yes |
//! | `operate-machines` | in the network | | | | yes | yes |
//! | `administer` | in the network | | | | | yes |
//!
//! A test compares this table with the code.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::ParseError;

/// An enum whose values have names, in text, JSON and the store alike.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $what:literal, $expected:literal, { $($(#[$value_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$value_doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $type {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        // Implemented by hand: the derive ignores names that a macro passes on, and would show those of the variants.
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                let names = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($expected))
                    .enum_values(Some([$($name),*]));
                RefOr::T(names.into())
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = ParseError;

            fn from_str(s: &str) -> Result<Self, ParseError> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str() == s)
                    .ok_or_else(|| ParseError::new($what, s, $expected))
            }
        }
    };
}

named!(
    /// A right that an operation needs.
    Right, "right", "a right of docs/accounts.md, such as look or deploy", {
        /// Change one's own password, sessions and tokens.
        OwnAccount = "own-account",
        /// See the network from outside: its zone, its clusters.
        LookNetwork = "look-network",
        /// See a tenant, its apps and their logs.
        Look = "look",
        /// Deploy, roll back, delete, steer traffic.
        Deploy = "deploy",
        /// Submit, cancel and redrive jobs.
        RunJobs = "run-jobs",
        /// Set values of secrets.
        ManageSecrets = "manage-secrets",
        /// Set records in the DNS: below the host names of a tenant's apps; with a role in the network, in the whole zone.
        ManageRecords = "manage-records",
        /// Add, change and remove members of a tenant.
        ManageMembers = "manage-members",
        /// Manage the signing keys and the signature policy of uploads.
        ManageSigning = "manage-signing",
        /// See what a tenant used and what it costs.
        ReadBilling = "read-billing",
        /// Set budgets and their webhooks.
        ManageBudgets = "manage-budgets",
        /// See who changed what.
        ReadAudit = "read-audit",
        /// See nodes and what is inside clusters.
        LookMachines = "look-machines",
        /// Admit, drain and remove machines.
        OperateMachines = "operate-machines",
        /// Manage tenants, users and prices.
        Administer = "administer",
    }
);

named!(
    /// What a member may do in a tenant.
    TenantRole, "role", "owner, developer or viewer", {
        /// Everything in the tenant.
        Owner = "owner",
        /// Deploy and look.
        Developer = "developer",
        /// Look.
        Viewer = "viewer",
    }
);

named!(
    /// What a user may do in the network as a whole.
    NetworkRole, "network role", "admin or operator", {
        /// Everything that people do, in every tenant.
        Admin = "admin",
        /// Run the machines; no tenant's apps.
        Operator = "operator",
    }
);

/// Where a right counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For every user, without a tenant.
    Everyone,
    /// In one tenant.
    Tenant,
    /// In the network.
    Network,
}

impl Right {
    /// The right in words: "the right to …".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OwnAccount => "change one's own account in a session (API tokens never have it)",
            Self::LookNetwork => "look at the network",
            Self::Look => "look at apps",
            Self::Deploy => "change apps",
            Self::RunJobs => "run jobs",
            Self::ManageSecrets => "set secrets",
            Self::ManageRecords => "set records in the DNS",
            Self::ManageMembers => "manage members",
            Self::ManageSigning => "manage signing keys",
            Self::ReadBilling => "read bills",
            Self::ManageBudgets => "set budgets",
            Self::ReadAudit => "read the audit log",
            Self::LookMachines => "look at machines",
            Self::OperateMachines => "run the network's machines",
            Self::Administer => "administer the network",
        }
    }

    /// Where the right applies.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::OwnAccount | Self::LookNetwork => Scope::Everyone,
            Self::Look
            | Self::Deploy
            | Self::RunJobs
            | Self::ManageSecrets
            | Self::ManageRecords
            | Self::ManageMembers
            | Self::ManageSigning
            | Self::ReadBilling
            | Self::ManageBudgets
            | Self::ReadAudit => Scope::Tenant,
            Self::LookMachines | Self::OperateMachines | Self::Administer => Scope::Network,
        }
    }

    /// Whether the right permits no changes; it then holds in a suspended tenant too.
    #[must_use]
    pub const fn only_looks(self) -> bool {
        matches!(
            self,
            Self::LookNetwork
                | Self::Look
                | Self::ReadBilling
                | Self::ReadAudit
                | Self::LookMachines
        )
    }

    /// Whether an API token may have the right. A token that could create tokens or change the password would outlive its own end.
    #[must_use]
    pub fn for_tokens(self) -> bool {
        self != Self::OwnAccount
    }
}

impl TenantRole {
    /// Whether the role has a right in its tenant.
    #[must_use]
    pub const fn has(self, right: Right) -> bool {
        match right {
            Right::Look => true,
            Right::Deploy | Right::RunJobs | Right::ManageSecrets | Right::ManageRecords => {
                matches!(self, Self::Owner | Self::Developer)
            }
            Right::ManageMembers
            | Right::ManageSigning
            | Right::ReadBilling
            | Right::ManageBudgets
            | Right::ReadAudit => {
                matches!(self, Self::Owner)
            }
            Right::OwnAccount
            | Right::LookNetwork
            | Right::LookMachines
            | Right::OperateMachines
            | Right::Administer => false,
        }
    }
}

impl NetworkRole {
    /// Whether the role has a right, in the network and in every tenant.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        match (self, right.scope()) {
            (_, Scope::Everyone) | (Self::Admin, Scope::Tenant | Scope::Network) => true,
            (Self::Operator, Scope::Network) => right != Right::Administer,
            // The zone is part of what operators run: they set records anywhere in it.
            (Self::Operator, Scope::Tenant) => right == Right::ManageRecords,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of the table in this file's header, for one right.
    fn row(right: Right) -> Vec<bool> {
        let text = include_str!("rights.rs");
        let line = text
            .lines()
            .filter(|line| line.starts_with("//! |"))
            .find(|line| line.contains(&format!("`{right}`")))
            .unwrap_or_else(|| panic!("{right} is in the table"));
        let cells: Vec<&str> = line.split('|').skip(3).collect();
        cells[..5].iter().map(|cell| cell.trim() == "yes").collect()
    }

    #[test]
    fn the_table_of_rights_is_the_code() {
        for right in Right::ALL {
            let everyone = right.scope() == Scope::Everyone;
            let tenant = |role: TenantRole| everyone || role.has(*right);
            let made = vec![
                tenant(TenantRole::Owner),
                tenant(TenantRole::Developer),
                tenant(TenantRole::Viewer),
                NetworkRole::Operator.has(*right),
                NetworkRole::Admin.has(*right),
            ];
            assert_eq!(made, row(*right), "{right}");
        }
    }

    #[test]
    fn names_are_the_same_everywhere() {
        for right in Right::ALL {
            let json = serde_json::to_string(right).expect("JSON");
            assert_eq!(json, format!("\"{right}\""));
            assert_eq!(right.as_str().parse::<Right>().expect("own name"), *right);
        }
        assert!("root".parse::<NetworkRole>().is_err());
        assert_eq!(
            "owner".parse::<TenantRole>().expect("role"),
            TenantRole::Owner
        );
    }

    #[test]
    fn tokens_never_manage_accounts() {
        let never: Vec<Right> = Right::ALL
            .iter()
            .copied()
            .filter(|r| !r.for_tokens())
            .collect();
        assert_eq!(never, [Right::OwnAccount]);
    }
}
