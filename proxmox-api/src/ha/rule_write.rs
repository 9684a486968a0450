use std::fmt;

use super::{resource_write::check_comment, rule::rules};
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, HaSid, NodeName, RuleName},
    wire::Form,
};

/// What an HA rule says. Each kind has its own fields; PVE refuses those of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaAffinity {
    /// The guests run on these nodes.
    Node {
        /// The guests; each must be under HA.
        resources: Vec<HaSid>,
        /// The nodes, with a priority if they have one: the highest is preferred.
        nodes: Vec<(NodeName, Option<u32>)>,
        /// Whether they run nowhere else, and stop if none of the nodes is left.
        strict: bool,
    },
    /// The guests run on one node.
    Together(Vec<HaSid>),
    /// No two of the guests run on one node.
    Apart(Vec<HaSid>),
}

/// The kinds of HA rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HaRuleKind {
    /// Guests and the nodes they run on.
    NodeAffinity,
    /// Guests that run together or apart.
    ResourceAffinity,
}

impl fmt::Display for HaRuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeAffinity => "node-affinity",
            Self::ResourceAffinity => "resource-affinity",
        })
    }
}

/// An HA rule to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHaRule {
    /// What it says.
    pub affinity: HaAffinity,
    /// Whether it is switched off.
    pub disable: bool,
    /// What it is for, at most 4096 characters.
    pub comment: Option<String>,
}

impl NewHaRule {
    fn form(&self) -> Result<Form, Error> {
        check_comment(self.comment.as_deref())?;
        let resources = match &self.affinity {
            HaAffinity::Node { resources, .. } => resources,
            HaAffinity::Together(resources) | HaAffinity::Apart(resources) => resources,
        };
        let least = if matches!(self.affinity, HaAffinity::Node { .. }) { 1 } else { 2 };
        if resources.len() < least {
            return Err(Error::argument(
                "resources",
                format!("too few guests for the rule; it needs {least}"),
            ));
        }
        let form = match &self.affinity {
            HaAffinity::Node { nodes, strict, .. } => {
                if nodes.is_empty() {
                    return Err(Error::argument("nodes", "no node; name at least one"));
                }
                let node = |(node, priority): &(NodeName, Option<u32>)| match priority {
                    Some(priority) => format!("{node}:{priority}"),
                    None => node.to_string(),
                };
                Form::new()
                    .put("type", HaRuleKind::NodeAffinity)
                    .put_list("nodes", nodes.iter().map(node))
                    .put_flag("strict", *strict)
            }
            HaAffinity::Together(_) => {
                Form::new().put("type", HaRuleKind::ResourceAffinity).put("affinity", "positive")
            }
            HaAffinity::Apart(_) => {
                Form::new().put("type", HaRuleKind::ResourceAffinity).put("affinity", "negative")
            }
        };
        Ok(form.put_list("resources", resources).put_some("comment", self.comment.as_ref()))
    }
}

impl Client {
    /// Makes an HA rule (`POST /cluster/ha/rules`; needs `Sys.Console` on `/`; PVE 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]. PVE refuses guests that are not under HA, and a rule that cannot be kept, with a text that says
    /// why. Too few guests or nodes are refused before anything is sent.
    pub async fn create_ha_rule(&self, rule: &RuleName, new: &NewHaRule) -> Result<(), Error> {
        let form = new.form()?.put("rule", rule).put_if("disable", new.disable);
        self.post(rules(), form).await?.done()
    }

    /// Makes an HA rule exactly this one; its kind cannot change (`PUT /cluster/ha/rules/{rule}`; needs `Sys.Console`
    /// on `/`; PVE 9). Done when it is answered.
    ///
    /// # Errors
    /// As for [`Client::create_ha_rule`]; [`Changed`](crate::ErrorKind::Changed) when the digest is not that of the
    /// rules.
    pub async fn replace_ha_rule(
        &self,
        rule: &RuleName,
        new: &NewHaRule,
        digest: &Digest,
    ) -> Result<(), Error> {
        let form = new.form()?.put_flag("disable", new.disable);
        let unset = new.comment.is_none().then_some("comment");
        self.put(rules().id(rule), form.put_list("delete", unset).put("digest", digest)).await?.done()
    }

    /// Switches an HA rule on or off and leaves the rest of it (as [`Client::replace_ha_rule`]). PVE wants to hear its
    /// kind.
    ///
    /// # Errors
    /// As for [`Client::replace_ha_rule`].
    pub async fn enable_ha_rule(
        &self,
        rule: &RuleName,
        kind: HaRuleKind,
        enable: bool,
        digest: &Digest,
    ) -> Result<(), Error> {
        let form = Form::new().put("type", kind).put_flag("disable", !enable).put("digest", digest);
        self.put(rules().id(rule), form).await?.done()
    }

    /// Deletes an HA rule (`DELETE /cluster/ha/rules/{rule}`; needs `Sys.Console` on `/`; PVE 9). Done when it is
    /// answered, also when there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_ha_rule(&self, rule: &RuleName) -> Result<(), Error> {
        self.delete(rules().id(rule), Form::new()).await?.done()
    }
}
