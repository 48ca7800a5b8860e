//! Invitations: how a user gets a password that nobody else has chosen.
//!
//! An admin creates an [`Invitation`] for a user without a password. Its holder chooses the password, once, before it expires: on the
//! console's page that the link opens, or with `fdn login --invitation-file`. A new invitation replaces the previous one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::account::SessionKind;
use crate::error::ParseError;
use crate::id::UserName;
use crate::rights::NetworkRole;
use crate::unit::{DurationMs, Timestamp};

/// The right to choose a user's password: `fdn-invite.USER.SECRET`. USER is the name's UTF-8 in hexadecimal, so that the text needs no
/// quoting in a URL or a shell. `Debug` hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    user: UserName,
    secret: String,
}

/// The number of hexadecimal digits in an invitation's secret: 256 bits.
const SECRET_LEN: usize = 64;

/// The prefix of every invitation.
const PREFIX: &str = "fdn-invite.";

impl Invitation {
    /// The path of the console's page; the invitation follows as the fragment, which browsers send to no server (RFC 9110, section 4.2.5).
    pub const PAGE: &'static str = "/invitation";

    /// An invitation with a secret of 64 hexadecimal digits, drawn by the caller.
    ///
    /// # Errors
    /// When the secret has another form.
    pub fn new(user: UserName, secret: &str) -> Result<Self, ParseError> {
        if secret.len() != SECRET_LEN || !secret.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        Ok(Self {
            user,
            secret: secret.to_ascii_lowercase(),
        })
    }

    /// The user whose password can be chosen with it.
    #[must_use]
    pub const fn user(&self) -> &UserName {
        &self.user
    }

    /// The secret: for hashing, never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The complete invitation as text; shown once.
    #[must_use]
    pub fn expose(&self) -> String {
        let user = hex::encode(self.user.as_str());
        format!("{PREFIX}{user}.{}", self.secret)
    }
}

/// The value is a secret, so the error does not repeat it.
fn malformed() -> ParseError {
    ParseError::new(
        "invitation",
        "…",
        "fdn-invite.USER.SECRET or the whole link, as `fdn user invite` printed it",
    )
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation({})", self.user)
    }
}

impl FromStr for Invitation {
    type Err = ParseError;

    /// Parses an invitation, or a link that ends with one.
    fn from_str(s: &str) -> Result<Self, ParseError> {
        let last = s.trim().rsplit('#').next().unwrap_or_default();
        let parts = last.strip_prefix(PREFIX);
        let (user, secret) = parts
            .and_then(|rest| rest.rsplit_once('.'))
            .ok_or_else(malformed)?;
        let user = hex::decode(user).map_err(|_| malformed())?;
        let user = String::from_utf8(user).map_err(|_| malformed())?;
        Self::new(user.parse().map_err(|_| malformed())?, secret)
    }
}

/// A request to invite a user, who is created if the name is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InviteUser {
    /// The user's name.
    pub name: UserName,
    /// The role of a new user in the network as a whole; absent for none. For a user who was invited before, it must be the present role or
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// The invitation's lifetime, from `1s` to the network's limit.
    pub ttl: DurationMs,
}

/// A created invitation. The invitation itself is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedInvitation {
    /// The invitation, `fdn-invite.USER.SECRET`. The console's page for it is `/invitation#TOKEN`.
    pub token: String,
    /// The invitation's properties.
    pub info: InvitationInfo,
}

/// The properties of an invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitationInfo {
    /// The user whose password can be chosen with it.
    pub user: UserName,
    /// When the invitation was created.
    pub created_at: Timestamp,
    /// Who created the invitation.
    pub created_by: String,
    /// When the invitation expires.
    pub expires_at: Timestamp,
}

/// A request to accept an invitation: it sets the user's password and begins a session of the user.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptInvitation {
    /// The complete invitation.
    pub token: String,
    /// The chosen password.
    pub password: String,
    /// The form of the session's credentials.
    pub kind: SessionKind,
}

/// An accepted invitation, with a session of its user.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptedInvitation {
    /// The user who is logged in now.
    pub user: UserName,
    /// The session's token, to be sent as `Authorization: Bearer TOKEN`. Absent for a session of the kind `cookie`, whose cookie is in
    /// `set-cookie`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When the session ends.
    pub expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(user: &str) -> Invitation {
        let secret = "aB".repeat(32);
        Invitation::new(user.parse().expect("a name"), &secret).expect("an invitation")
    }

    #[test]
    fn an_invitation_is_shown_only_on_purpose() {
        let one = invitation("ann");
        let text = one.expose();
        assert_eq!(text, format!("fdn-invite.616e6e.{}", "ab".repeat(32)));
        let link = format!(" https://fdn.example.org/invitation#{text}\n");
        for said in [&text, &link] {
            assert_eq!(said.parse::<Invitation>().expect("own text"), one);
        }
        assert!(!format!("{one:?}").contains(one.secret()));
        for bad in [
            &text[..text.len() - 1],
            &text[1..],
            "fdn-invite.616e6e",
            "fdn-invite..00",
            "",
            &format!("{text}."),
            // A slash, no bytes of UTF-8, half a byte, nothing.
            &text.replace("616e6e", "2f"),
            &text.replace("616e6e", "ff"),
            &text.replace("616e6e", "616"),
            &text.replace("616e6e", ""),
        ] {
            let error = bad.parse::<Invitation>().expect_err(bad).to_string();
            assert!(!error.contains(&one.secret()[..60]), "{error}");
        }
    }

    #[test]
    fn every_name_stands_in_an_address() {
        for name in [
            "ann@example.org",
            "jane doe",
            "a.b",
            "a#b&c=d+e%",
            "Ünïcode",
            "'; --",
        ] {
            let one = invitation(name);
            let text = one.expose();
            assert!(
                text.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)),
                "{text}"
            );
            let read: Invitation = text.parse().expect("own text");
            assert_eq!(read.user().as_str(), name);
        }
    }
}
