//! Reads of tasks.

use super::read::{Read, list, list_of, record, tasks_of};
use super::schema::schema_of;
use super::spec::{Addresses, ToolSpec};
use crate::tools::args::TaskArgs;
use crate::tools::tasks;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "list_tasks",
        title: "Tasks of a node",
        description: "Lists tasks of one node, newest first: running and finished ones, or those of `source`, of one guest by `vmid`, \
                      of one worker type by `typefilter`, or that ended in one way by `outcome`. A token that may not read every guest sees the tasks of its guests \
                      among the node's newest 2000, without a total.",
        addresses: Addresses::Node,
        privileges: &["Sys.Audit"],
        input: tasks_of::<tasks::ListArgs>,
        output: || tasks::TASKS.window_schema(),
        run: list!(tasks::list, tasks::DEFAULT_LIMIT),
    }
    .tool(),
    Read {
        name: "get_task_status",
        title: "Task status",
        description: "State of one PVE task by its UPID: running, or stopped with its exit status. `OK` alone is success; \
                      `WARNINGS: n` is success with warnings; where PVE cannot tell how it ended, `success` is missing. A task on \
                      a guest outside this token's scope is refused like an unknown one.",
        addresses: Addresses::Task,
        privileges: &["Sys.Audit"],
        input: schema_of::<TaskArgs>,
        output: || tasks::STATUS.record_schema(),
        run: record!(tasks::status),
    }
    .tool(),
    Read {
        name: "get_task_log",
        title: "Task log",
        description: "Lines of one PVE task's log by its UPID, from line `offset` on; `total` says how many there are, so that the \
                      end can be asked for. Text that looks like a credential is removed. A task on a guest outside this token's \
                      scope is refused like an unknown one.",
        addresses: Addresses::Task,
        privileges: &["Sys.Audit"],
        input: list_of::<TaskArgs>,
        output: || tasks::LOG.window_schema(),
        run: list!(tasks::log),
    }
    .tool(),
];
