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

    /// Whose password it lets choose.
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

/// Invites a user, who is made if there is none of the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InviteUser {
    /// The name.
    pub name: UserName,
    /// What a new user may do in the network as a whole, if anything. For one who was invited before: the present role, or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// For how long the invitation is good.
    pub ttl: DurationMs,
}

/// An invitation that was made. It is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedInvitation {
    /// The invitation: `fdn-invite.USER.SECRET`. The console's page for it is `/invitation#TOKEN`.
    pub token: String,
    /// What it is good for.
    pub info: InvitationInfo,
}

/// What is known of an invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitationInfo {
    /// Whose password it lets choose.
    pub user: UserName,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Accepts an invitation: the password becomes the user's, and a session of the user begins.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptInvitation {
    /// The invitation, whole.
    pub token: String,
    /// The password that was chosen.
    pub password: String,
    /// How the session is held.
    pub kind: SessionKind,
}

/// An invitation that was accepted.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptedInvitation {
    /// Who is logged in now.
    pub user: UserName,
    /// Of a session held as `bearer`: sent from now on as `Authorization: Bearer TOKEN`. One held as `cookie` is in `set-cookie`.
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
