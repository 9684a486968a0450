//! What rules refer to by name: aliases, IP sets, security groups.

use super::FirewallScope;
use crate::{
    client::Client,
    error::Error,
    ids::{AliasName, Digest, IpSetName, SecurityGroup},
    wire::{Field, Form, JsonMap, Listing, Path, Record},
};

/// A name for an address or network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallAlias {
    /// The name.
    pub name: AliasName,
    /// What it stands for.
    pub cidr: Option<String>,
    /// 4 or 6.
    pub ipversion: Option<u64>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest of the scope's aliases, the same in each.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl FirewallAlias {
    fn read(row: &Record<'_>, name: AliasName) -> Self {
        Self {
            name,
            cidr: row.filled("cidr"),
            ipversion: row.integer("ipversion"),
            comment: row.filled("comment"),
            digest: row.id("digest"),
            json: row.json(),
        }
    }
}

/// A set of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpSet {
    /// Its name.
    pub name: IpSetName,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest of the scope's sets, the same in each.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// A member of an [`IpSet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpSetEntry {
    /// The address, network or alias, as PVE spells it; parse it as an [`IpSetMember`](crate::IpSetMember) to act
    /// on it.
    pub cidr: String,
    /// Whether it is an exception to the set; not when absent.
    pub nomatch: Field<bool>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest of the set.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// A security group: rules to be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallGroup {
    /// Its name.
    pub group: SecurityGroup,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest of the list of groups, the same in each.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// Something a rule of the scope may refer to as source or destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallRef {
    /// What a rule has to say: `+mgmt`, `dc/lan`.
    pub reference: String,
    /// `alias` or `ipset`.
    pub kind: Option<String>,
    /// Its bare name.
    pub name: Option<String>,
    /// `dc` or `guest`.
    pub scope: Option<String>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl Client {
    /// The aliases of the cluster or a guest (`GET …/firewall/aliases`; privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. A scope without aliases is refused before anything is sent.
    pub async fn firewall_aliases(&self, scope: &FirewallScope) -> Result<Listing<FirewallAlias>, Error> {
        self.read(scope.objects("aliases")?, Form::new())
            .await?
            .list(|row| Some(FirewallAlias::read(row, row.id("name")?)))
    }

    /// One alias (`GET …/firewall/aliases/{name}`; privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn firewall_alias(
        &self,
        scope: &FirewallScope,
        name: &AliasName,
    ) -> Result<FirewallAlias, Error> {
        let reply = self.read(scope.objects("aliases")?.id(name), Form::new()).await?;
        reply.record(|row| Ok(FirewallAlias::read(row, row.id("name").unwrap_or_else(|| name.clone()))))
    }

    /// The IP sets of the cluster or a guest (`GET …/firewall/ipset`; privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. A scope without IP sets is refused before anything is sent.
    pub async fn ipsets(&self, scope: &FirewallScope) -> Result<Listing<IpSet>, Error> {
        self.read(scope.objects("ipset")?, Form::new()).await?.list(|row| {
            Some(IpSet {
                name: row.id("name")?,
                comment: row.filled("comment"),
                digest: row.id("digest"),
                json: row.json(),
            })
        })
    }

    /// The members of an IP set (`GET …/firewall/ipset/{name}`; privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ipset_entries(
        &self,
        scope: &FirewallScope,
        name: &IpSetName,
    ) -> Result<Listing<IpSetEntry>, Error> {
        self.read(scope.objects("ipset")?.id(name), Form::new()).await?.list(|row| {
            Some(IpSetEntry {
                cidr: row.filled("cidr")?,
                nomatch: row.flag("nomatch"),
                comment: row.filled("comment"),
                digest: row.id("digest"),
                json: row.json(),
            })
        })
    }

    /// The security groups (`GET /cluster/firewall/groups`; any user; PVE 7 to 9). Their rules:
    /// [`Client::firewall_rules`] of [`FirewallScope::Group`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn security_groups(&self) -> Result<Listing<FirewallGroup>, Error> {
        let path = Path::of("cluster").word("firewall").word("groups");
        self.read(path, Form::new()).await?.list(|row| {
            Some(FirewallGroup {
                group: row.id("group")?,
                comment: row.filled("comment"),
                digest: row.id("digest"),
                json: row.json(),
            })
        })
    }

    /// What rules of the cluster or a guest may refer to, spelt as they have to (`GET …/firewall/refs`; privileges:
    /// [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn firewall_refs(&self, scope: &FirewallScope) -> Result<Listing<FirewallRef>, Error> {
        self.read(scope.objects("refs")?, Form::new()).await?.list(|row| {
            Some(FirewallRef {
                // Versions before 8 have the name only.
                reference: row.filled("ref").or_else(|| row.filled("name"))?,
                kind: row.filled("type"),
                name: row.filled("name"),
                scope: row.filled("scope"),
                comment: row.filled("comment"),
                json: row.json(),
            })
        })
    }
}
