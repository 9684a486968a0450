use super::FirewallScope;
use crate::{
    client::Client,
    error::Error,
    ids::Digest,
    wire::{Field, Form, JsonMap},
};

/// The options of a scope. What is not set has PVE's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallOptions {
    /// Whether the firewall is on: off by default for the cluster and guests, on for nodes. The cluster's is a number,
    /// the time it was switched on.
    pub enable: Field<bool>,
    /// What happens to incoming traffic no rule is for: `DROP` by default.
    pub policy_in: Option<String>,
    /// What happens to outgoing traffic no rule is for: `ACCEPT` by default.
    pub policy_out: Option<String>,
    /// What happens to forwarded traffic no rule is for; the cluster's.
    pub policy_forward: Option<String>,
    /// The digest to hand back with a change.
    pub digest: Option<Digest>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

impl Client {
    /// The options of the cluster's, a node's or a guest's firewall (`GET …/firewall/options`; privileges:
    /// [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. A security group, which has none, is refused before anything is sent.
    pub async fn firewall_options(&self, scope: &FirewallScope) -> Result<FirewallOptions, Error> {
        self.read(scope.options()?, Form::new()).await?.record(|options| {
            let enable = match (options.flag("enable"), options.integer("enable")) {
                (Field::Unreadable, Some(since)) => Field::Value(since > 0),
                (flag, _) => flag,
            };
            Ok(FirewallOptions {
                enable,
                policy_in: options.filled("policy_in"),
                policy_out: options.filled("policy_out"),
                policy_forward: options.filled("policy_forward"),
                digest: options.id("digest"),
                json: options.json(),
            })
        })
    }
}
