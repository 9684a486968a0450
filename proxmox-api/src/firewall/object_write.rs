use super::FirewallScope;
use crate::{
    client::Client,
    error::Error,
    ids::{AliasName, Cidr, Digest, IpSetMember, IpSetName, SecurityGroup},
    wire::{Form, Path},
};

/// `/cluster/firewall/groups`
fn groups() -> Path {
    Path::of("cluster").word("firewall").word("groups")
}

impl Client {
    /// Makes an alias (`POST …/firewall/aliases`; privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]. A scope without aliases is refused before anything is sent.
    pub async fn create_firewall_alias(
        &self,
        scope: &FirewallScope,
        name: &AliasName,
        cidr: &Cidr,
        comment: Option<&str>,
    ) -> Result<(), Error> {
        let form = Form::new().put("name", name).put("cidr", cidr).put_some("comment", comment);
        self.post(scope.objects("aliases")?, form).await?.done()
    }

    /// Changes what an alias stands for, its comment (removed when there is none) and, with `rename`, its name
    /// (`PUT …/firewall/aliases/{name}`; privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered. Rules that
    /// use the old name have no effect any more.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the digest is not that of the aliases.
    pub async fn update_firewall_alias(
        &self,
        scope: &FirewallScope,
        name: &AliasName,
        cidr: &Cidr,
        comment: Option<&str>,
        rename: Option<&AliasName>,
        digest: &Digest,
    ) -> Result<(), Error> {
        let form = Form::new()
            .put("cidr", cidr)
            .put_some("comment", comment)
            .put_some("rename", rename)
            .put("digest", digest);
        self.put(scope.objects("aliases")?.id(name), form).await?.done()
    }

    /// Deletes an alias (`DELETE …/firewall/aliases/{name}`; privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is
    /// answered. PVE does not ask whether a rule uses it; such a rule has no effect any more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_firewall_alias(
        &self,
        scope: &FirewallScope,
        name: &AliasName,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        let query = Form::new().put_some("digest", digest);
        self.delete(scope.objects("aliases")?.id(name), query).await?.done()
    }

    /// Makes an IP set (`POST …/firewall/ipset`; privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]. A scope without IP sets is refused before anything is sent.
    pub async fn create_ipset(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        comment: Option<&str>,
    ) -> Result<(), Error> {
        let form = Form::new().put("name", name).put_some("comment", comment);
        self.post(scope.objects("ipset")?, form).await?.done()
    }

    /// Gives an IP set another name or comment (`POST …/firewall/ipset` with `rename`; privileges: [`FirewallScope`];
    /// PVE 7 to 9). Done when it is answered. Rules that use the old name have no effect any more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_ipset(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        new_name: &IpSetName,
        comment: Option<&str>,
        digest: &Digest,
    ) -> Result<(), Error> {
        // PVE's `rename` is the name it has, `name` the one it gets.
        let form = Form::new()
            .put("name", new_name)
            .put("rename", name)
            .put_some("comment", comment)
            .put("digest", digest);
        self.post(scope.objects("ipset")?, form).await?.done()
    }

    /// Deletes an IP set (`DELETE …/firewall/ipset/{name}`; privileges: [`FirewallScope`]; PVE 7 to 9, `force` 8 and 9).
    /// Done when it is answered. Without `force` it must be empty. PVE does not ask whether a rule uses it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_ipset(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        force: bool,
    ) -> Result<(), Error> {
        self.delete(scope.objects("ipset")?.id(name), Form::new().put_if("force", force)).await?.done()
    }

    /// Adds a member to an IP set, or with `nomatch` an exception (`POST …/firewall/ipset/{name}`; privileges:
    /// [`FirewallScope`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn add_ipset_entry(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        member: &IpSetMember,
        nomatch: bool,
        comment: Option<&str>,
    ) -> Result<(), Error> {
        let form = Form::new().put("cidr", member).put_if("nomatch", nomatch).put_some("comment", comment);
        self.post(scope.objects("ipset")?.id(name), form).await?.done()
    }

    /// Changes whether a member of an IP set is an exception, and its comment (`PUT …/firewall/ipset/{name}/{cidr}`;
    /// privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_ipset_entry(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        member: &IpSetMember,
        nomatch: bool,
        comment: Option<&str>,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        let form =
            Form::new().put_flag("nomatch", nomatch).put_some("comment", comment).put_some("digest", digest);
        self.put(scope.objects("ipset")?.id(name).id(member), form).await?.done()
    }

    /// Takes a member out of an IP set (`DELETE …/firewall/ipset/{name}/{cidr}`; privileges: [`FirewallScope`]; PVE 7
    /// to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_ipset_entry(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
        member: &IpSetMember,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        let query = Form::new().put_some("digest", digest);
        self.delete(scope.objects("ipset")?.id(name).id(member), query).await?.done()
    }

    /// Makes a security group (`POST /cluster/firewall/groups`; needs `Sys.Modify` on `/`; PVE 7 to 9). Done when it is
    /// answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_security_group(
        &self,
        group: &SecurityGroup,
        comment: Option<&str>,
    ) -> Result<(), Error> {
        let form = Form::new().put("group", group).put_some("comment", comment);
        self.post(groups(), form).await?.done()
    }

    /// Gives a security group another name or comment (`POST /cluster/firewall/groups` with `rename`; needs
    /// `Sys.Modify` on `/`; PVE 7 to 9). Done when it is answered. Rules that use the old name have no effect any more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update_security_group(
        &self,
        group: &SecurityGroup,
        new_name: &SecurityGroup,
        comment: Option<&str>,
        digest: &Digest,
    ) -> Result<(), Error> {
        // PVE's `rename` is the name it has, `group` the one it gets.
        let form = Form::new()
            .put("group", new_name)
            .put("rename", group)
            .put_some("comment", comment)
            .put("digest", digest);
        self.post(groups(), form).await?.done()
    }

    /// Deletes a security group (`DELETE /cluster/firewall/groups/{group}`; needs `Sys.Modify` on `/`; PVE 7 to 9). Done
    /// when it is answered. It must have no rules; delete those from the last to the first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_security_group(&self, group: &SecurityGroup) -> Result<(), Error> {
        self.delete(groups().id(group), Form::new()).await?.done()
    }
}
