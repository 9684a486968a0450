//! Routine changes of what is no guest: images that a node downloads, tasks that are stopped.

use serde_json::Value;

use super::change::{Change, at_once, change, followed};
use super::spec::{Addresses, Arguments, FETCHES, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::images::{self, DownloadArgs};
use crate::tools::routine;
use crate::tools::stop_task::{self, StopTaskArgs};

fn download_output() -> Value {
    routine::output_with(&[("volid", "string", "the volume that the file becomes")])
}

fn stop_output() -> Value {
    routine::output_with(&[("stopped", "string", "the task; it ends a little later")])
}

const STOP_TASK: Change = Change {
    name: "stop_task",
    title: "Stop a task",
    description: "Stops a running PVE task by its UPID. What it had done stays done: a restore or migration that is stopped leaves a \
                      guest that somebody has to look at. A task belongs to its guest by its worker type; tasks of protected guests \
                      are not stopped, those of no guest only for a token that may read every guest. PVE lets the cluster's token \
                      stop its own tasks; others' need `Sys.Modify` on the node.",
    addresses: Addresses::Task,
    interrupts: true,
    writes_guest: false,
    hints: INTERRUPTS,
    privileges: &[],
    input: at_once::<StopTaskArgs>,
    output: stop_output,
    run: change!(stop_task::stop),
};
/// What `stop_task` is with a task that belongs to no guest: nothing that runs in a guest is interrupted, and only a token that
/// sees every guest sees the task.
pub(super) static STOP_TASK_OF_NO_GUEST: ToolSpec =
    Change { addresses: Addresses::Cluster, interrupts: false, hints: ROUTINE, ..STOP_TASK }.tool();

/// Whether these arguments of `stop_task` name a task of no guest. What is no task at all stays with the rule that is stricter.
pub(super) fn is_of_no_guest(arguments: &Arguments) -> bool {
    let upid =
        arguments.get("upid").and_then(Value::as_str).and_then(|upid| upid.parse::<proxmox_api::Upid>().ok());
    upid.is_some_and(|upid| upid.guest().is_none())
}

pub(super) static TOOLS: &[ToolSpec] = &[
    Change {
        name: "download_iso",
        title: "Download an image onto a storage",
        description: "Has a node download an ISO image, a container template or an import image from a URL onto a storage, and answers \
                      with the task. The URL is judged by the operator's policy for fetches: private addresses are refused unless the \
                      operator allows them. The node follows redirects by itself, so give the `checksum`. A file of that name is not \
                      replaced.",
        addresses: Addresses::Cluster,
        interrupts: false,
        writes_guest: false,
        hints: FETCHES,
        privileges: &["Datastore.Audit", "Datastore.AllocateTemplate", "Sys.AccessNetwork"],
        input: followed::<DownloadArgs>,
        output: download_output,
        run: change!(images::download),
    }
    .tool(),
    STOP_TASK.tool(),
];
