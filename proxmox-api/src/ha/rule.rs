use crate::{
    client::Client,
    error::Error,
    ids::{Digest, RuleName},
    wire::{Field, Form, JsonMap, Listing, Path, Record},
};

/// A rule about where guests under HA may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaRule {
    /// Its name.
    pub rule: RuleName,
    /// `node-affinity` or `resource-affinity`.
    pub kind: Option<String>,
    /// The guests it is about, `vm:100`.
    pub resources: Vec<String>,
    /// Of a node affinity: the nodes, with their priority if they have one, `pve1:2`.
    pub nodes: Vec<String>,
    /// Of a node affinity: whether the guests run nowhere else.
    pub strict: Field<bool>,
    /// Of a resource affinity: `positive` (together) or `negative` (apart).
    pub affinity: Option<String>,
    /// Whether it is switched off; not when absent.
    pub disable: Field<bool>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest to hand back with a change; of all rules.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl HaRule {
    fn read(row: &Record<'_>, rule: RuleName) -> Self {
        Self {
            rule,
            kind: row.filled("type"),
            resources: row.texts("resources"),
            nodes: row.texts("nodes"),
            strict: row.flag("strict"),
            affinity: row.filled("affinity"),
            disable: row.flag("disable"),
            comment: row.filled("comment"),
            digest: row.id("digest"),
            json: row.json(),
        }
    }
}

/// `/cluster/ha/rules`
pub(super) fn rules() -> Path {
    Path::of("cluster").word("ha").word("rules")
}

impl Client {
    /// The HA rules (`GET /cluster/ha/rules`; needs `Sys.Audit` on `/`; PVE 9).
    ///
    /// # Errors
    /// See [`Error`]; before PVE 9 there are none and it is [`Unsupported`](crate::ErrorKind::Unsupported).
    pub async fn ha_rules(&self) -> Result<Listing<HaRule>, Error> {
        self.read(rules(), Form::new()).await?.list(|row| Some(HaRule::read(row, row.id("rule")?)))
    }

    /// One HA rule (`GET /cluster/ha/rules/{rule}`; needs `Sys.Audit` on `/`; PVE 9).
    ///
    /// # Errors
    /// See [`Error`]; [`NotFound`](crate::ErrorKind::NotFound) when there is none of that name.
    pub async fn ha_rule(&self, rule: &RuleName) -> Result<HaRule, Error> {
        let reply = self.read(rules().id(rule), Form::new()).await?;
        reply.record(|row| Ok(HaRule::read(row, row.id("rule").unwrap_or_else(|| rule.clone()))))
    }
}
