//! Reads of clusters as a whole, and questions to several clusters at once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use proxmox_api::ClusterStatus;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::args::{ClusterArgs, NoArgs};
use super::cluster_of;
use super::paging::Paging;
use super::table::{Table, flag, integer, objects, text};
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::resolve::visible_guests;
use crate::stack::{CallContext, ToolFailure};

/// Longest that one cluster may hold up an answer about several.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The clusters a call is about: the one it names, or all that its token may see, by name.
pub fn addressed(ctx: &CallContext, target: &Target) -> Vec<Arc<Cluster>> {
    match target {
        Target::Cluster(cluster) | Target::Guest(cluster, _) => vec![cluster.clone()],
        Target::Nothing => {
            let principal = &ctx.caller.principal;
            let clusters = ctx.caller.snapshot.clusters.values();
            clusters.filter(|cluster| principal.may_see_cluster(&cluster.name)).cloned().collect()
        }
    }
}

/// Asks every cluster at the same time. The answers come in the clusters' order; one that does not answer in time costs
/// nothing but its own answer.
pub async fn ask_each<T, F>(
    clusters: Vec<Arc<Cluster>>,
    ask: impl Fn(Arc<Cluster>) -> F,
) -> Vec<(Arc<Cluster>, Result<T, ToolFailure>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ToolFailure>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for (at, cluster) in clusters.iter().enumerate() {
        let answer = tokio::time::timeout(ANSWER_WITHIN, ask(cluster.clone()));
        asked.spawn(async move { (at, answer.await) });
    }
    let mut answers: Vec<Option<Result<T, ToolFailure>>> = clusters.iter().map(|_| None).collect();
    while let Some(ended) = asked.join_next().await {
        let Ok((at, answer)) = ended else { continue };
        if let Some(place) = answers.get_mut(at) {
            *place = Some(answer.unwrap_or_else(|_| {
                let message = format!("the cluster did not answer within {} s", ANSWER_WITHIN.as_secs());
                Err(ToolFailure::new("timeout", message))
            }));
        }
    }
    let fault = || Err(ToolFailure::new("internal", "asking the cluster ended unexpectedly; report it"));
    clusters
        .into_iter()
        .zip(answers)
        .map(|(cluster, answer)| (cluster, answer.unwrap_or_else(fault)))
        .collect()
}

/// A cluster that could not be asked.
#[derive(Debug)]
pub struct Unreachable {
    /// Its name.
    pub cluster: String,
    /// Why.
    pub failure: ToolFailure,
}

impl Unreachable {
    /// As answers show it.
    pub fn describe(&self) -> Value {
        json!({"cluster": self.cluster, "code": self.failure.code(), "message": self.failure.public_message()})
    }
}

/// What `list_clusters` knows of one cluster.
#[derive(Debug)]
pub struct Entry {
    cluster: Arc<Cluster>,
    answer: Result<Answer, ToolFailure>,
}

/// What a cluster that answers tells.
#[derive(Debug)]
pub struct Answer {
    version: String,
    guests: Option<u64>,
    /// Only for tokens that may see the cluster as a whole.
    status: Option<ClusterStatus>,
}

impl Entry {
    fn status(&self) -> Option<&ClusterStatus> {
        self.answer.as_ref().ok()?.status.as_ref()
    }
}

/// `list_clusters`.
pub static CLUSTERS: Table<Entry> = Table(&[
    text("cluster", "the name that other tools take", |entry| Some(entry.cluster.name.clone())),
    flag("reachable", "", |entry| Some(entry.answer.is_ok())),
    text("version", "of PVE", |entry| Some(entry.answer.as_ref().ok()?.version.clone())),
    integer("guests", "how many this token sees", |entry| entry.answer.as_ref().ok()?.guests),
    flag("quorate", "false: nothing can be changed", |entry| quorate(entry.status()?)),
    integer("nodes", "", |entry| Some(entry.status()?.nodes.len() as u64)),
    integer("nodes_online", "", |entry| Some(online(entry.status()?))),
    text("code", "why it is not reachable", |entry| Some(entry.answer.as_ref().err()?.code().to_owned())),
    text("message", "", |entry| Some(entry.answer.as_ref().err()?.public_message().to_owned())),
]);

fn quorate(status: &ClusterStatus) -> Option<bool> {
    // A single node has no entry of a cluster, and needs no quorum.
    status.quorate.or_default(true)
}

fn online(status: &ClusterStatus) -> u64 {
    status.nodes.iter().filter(|node| node.online.value() == Some(&true)).count() as u64
}

/// `list_clusters`.
pub async fn list(ctx: &CallContext, target: &Target, _args: NoArgs, paging: &Paging) -> HandlerResult {
    let answers = ask_each(addressed(ctx, target), |cluster| look(ctx.clone(), cluster)).await;
    let entries: Vec<Entry> =
        answers.into_iter().map(|(cluster, answer)| Entry { cluster, answer }).collect();
    CLUSTERS.page(&entries, 0, paging)
}

async fn look(ctx: CallContext, cluster: Arc<Cluster>) -> Result<Answer, ToolFailure> {
    let principal = &ctx.caller.principal;
    let status = async {
        // What is not allowed to this cluster's API token is left out; that the cluster answers is told all the same.
        if principal.unrestricted_guests() { cluster.client.cluster_status().await.ok() } else { None }
    };
    let inventory = ctx.app.resolver.inventory(&cluster, ctx.caller.snapshot.read_freshness());
    let (version, inventory, status) = tokio::join!(cluster.client.version(), inventory, status);
    let guests =
        inventory.ok().map(|inventory| visible_guests(&inventory, &cluster.name, principal).count() as u64);
    Ok(Answer { version: version?.version, guests, status })
}

/// `get_cluster_status`.
pub static STATUS: Table<(String, ClusterStatus)> = Table(&[
    text("cluster", "the name that tools take", |(name, _)| Some(name.clone())),
    text("name", "PVE's own name of it; missing on a single node", |(_, status)| status.name.clone()),
    flag("quorate", "false: nothing can be changed; missing: PVE did not say", |(_, status)| quorate(status)),
    integer("nodes_online", "", |(_, status)| Some(online(status))),
    integer("skipped", "unreadable rows of PVE's answer", |(_, status)| Some(status.skipped as u64)),
    objects("nodes", "name, online, ip, and which one answered (`local`)", |(_, status)| {
        let mut nodes: Vec<_> = status.nodes.iter().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
            .iter()
            .map(|node| {
                json!({
                    "name": node.name.as_str(), "online": node.online.value(), "local": node.local.value(),
                    "ip": node.ip,
                })
            })
            .collect()
    }),
]);

/// `get_cluster_status`.
pub async fn status(_ctx: &CallContext, target: &Target, _args: ClusterArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let status = cluster.client.cluster_status().await?;
    Ok(Value::Object(STATUS.record(&(cluster.name.clone(), status))))
}
