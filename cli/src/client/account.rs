//! Tenants, members, users, API tokens and the audit log, as typed calls. All fail like [`Client::network`].

use fdn_core::account::{
    ApiTokenInfo, AuditRecord, ChangePassword, CreateApiToken, CreateTenant, CreateUser,
    CreatedApiToken, MemberInfo, PutMember, SetPassword, TenantInfo, TenantRef, UpdateTenant,
    UpdateUser, UserInfo, WhoAmI,
};
use fdn_core::invitation::{AcceptInvitation, AcceptedInvitation, CreatedInvitation, InviteUser};
use fdn_core::{ApiTokenId, UserName};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// The identity of the caller.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn who(&self) -> Result<WhoAmI, CliError> {
        read(self.request(Method::GET, &["v1", "session"])?).await
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_tenant(&self, body: &CreateTenant) -> Result<TenantInfo, CliError> {
        read(self.request(Method::POST, &["v1", "tenants"])?.json(body)).await
    }

    /// The caller's tenants.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn tenants(&self) -> Result<Vec<TenantInfo>, CliError> {
        self.list(&["v1", "tenants"], &[]).await
    }

    /// One tenant.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn tenant(&self, tenant: &TenantRef) -> Result<TenantInfo, CliError> {
        read(self.request(Method::GET, &["v1", "tenants", &tenant.to_string()])?).await
    }

    /// Renames, suspends or resumes a tenant.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn update_tenant(
        &self,
        tenant: &TenantRef,
        body: &UpdateTenant,
    ) -> Result<TenantInfo, CliError> {
        let request = self.request(Method::PATCH, &["v1", "tenants", &tenant.to_string()])?;
        read(request.json(body)).await
    }

    /// A tenant's members.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn members(&self, tenant: &TenantRef) -> Result<Vec<MemberInfo>, CliError> {
        let path = ["v1", "tenants", &tenant.to_string(), "members"];
        self.list(&path, &[]).await
    }

    /// Adds a member or changes one's role.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn put_member(
        &self,
        tenant: &TenantRef,
        user: &UserName,
        body: &PutMember,
    ) -> Result<MemberInfo, CliError> {
        let tenant = tenant.to_string();
        let path = ["v1", "tenants", &tenant, "members", user.as_str()];
        read(self.request(Method::PUT, &path)?.json(body)).await
    }

    /// Removes a member.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_member(&self, tenant: &TenantRef, user: &UserName) -> Result<(), CliError> {
        let tenant = tenant.to_string();
        let path = ["v1", "tenants", &tenant, "members", user.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// Creates a user.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_user(&self, body: &CreateUser) -> Result<UserInfo, CliError> {
        read(self.request(Method::POST, &["v1", "users"])?.json(body)).await
    }

    /// Invites a user.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn invite_user(&self, body: &InviteUser) -> Result<CreatedInvitation, CliError> {
        let request = self.request(Method::POST, &["v1", "invitations"])?;
        read(request.json(body)).await
    }

    /// Accepts an invitation.
    ///
    /// # Errors
    /// As for [`Self::login`].
    pub async fn accept_invitation(
        &self,
        body: &AcceptInvitation,
    ) -> Result<AcceptedInvitation, CliError> {
        let path = ["v1", "invitations", "accept"];
        read(self.open(Method::POST, &path).json(body)).await
    }

    /// All users.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn users(&self) -> Result<Vec<UserInfo>, CliError> {
        self.list(&["v1", "users"], &[]).await
    }

    /// Disables or enables a user, or changes its role.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn update_user(
        &self,
        user: &UserName,
        body: &UpdateUser,
    ) -> Result<UserInfo, CliError> {
        let request = self.request(Method::PATCH, &["v1", "users", user.as_str()])?;
        read(request.json(body)).await
    }

    /// Sets the password of a user.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn set_password(&self, user: &UserName, body: &SetPassword) -> Result<(), CliError> {
        let path = ["v1", "users", user.as_str(), "password"];
        send(self.request(Method::PUT, &path)?.json(body))
            .await
            .map(drop)
    }

    /// Changes the caller's own password.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn change_password(&self, body: &ChangePassword) -> Result<(), CliError> {
        let request = self.request(Method::POST, &["v1", "password"])?;
        send(request.json(body)).await.map(drop)
    }

    /// Creates an API token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_api_token(
        &self,
        body: &CreateApiToken,
    ) -> Result<CreatedApiToken, CliError> {
        read(self.request(Method::POST, &["v1", "tokens"])?.json(body)).await
    }

    /// The caller's own API tokens.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn api_tokens(&self) -> Result<Vec<ApiTokenInfo>, CliError> {
        self.list(&["v1", "tokens"], &[]).await
    }

    /// Revokes an API token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn revoke_api_token(&self, id: ApiTokenId) -> Result<(), CliError> {
        let path = ["v1", "tokens", &id.to_string()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// The newest entries of the audit log that match the query.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn audit(&self, query: &[(&str, String)]) -> Result<Vec<AuditRecord>, CliError> {
        read(self.request(Method::GET, &["v1", "audit"])?.query(query)).await
    }
}
