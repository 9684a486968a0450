//! Reads of storages and what is on them.

use super::read::{Read, list, list_of};
use super::spec::{Addresses, Place, ToolSpec};
use crate::tools::args::{NodeArgs, StorageArgs};
use crate::tools::storage;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "get_storage",
        title: "Storages of a node",
        description: "Lists the storages one node sees: type, what may be kept on each, whether it is usable now, size and use. Needs \
                      a token that may read every guest.",
        addresses: Addresses::Whole(Place::Node),
        privileges: &["Datastore.Audit"],
        input: list_of::<NodeArgs>,
        output: || storage::STORAGES.list_schema(),
        run: list!(storage::storages),
    }
    .tool(),
    Read {
        name: "list_backups",
        title: "Backups",
        description: "Lists the backup archives on one storage that belong to guests this token may see, all of them or those of \
                      `vmid`: volid, vmid, kind, size, time, notes, protection. Sorted by volid. Text in notes that looks like a \
                      credential is removed.",
        addresses: Addresses::Storage,
        privileges: &["Datastore.AllocateSpace", "VM.Backup"],
        input: list_of::<storage::BackupArgs>,
        output: || storage::BACKUPS.list_schema(),
        run: list!(storage::backups),
    }
    .tool(),
    Read {
        name: "list_isos",
        title: "ISO images",
        description: "Lists the ISO images on one storage. Sorted by volid. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Storage),
        privileges: &["Datastore.Audit"],
        input: list_of::<StorageArgs>,
        output: || storage::FILES.list_schema(),
        run: list!(storage::isos),
    }
    .tool(),
    Read {
        name: "list_templates",
        title: "Container templates",
        description: "Lists the container templates on one storage. Sorted by volid. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Storage),
        privileges: &["Datastore.Audit"],
        input: list_of::<StorageArgs>,
        output: || storage::FILES.list_schema(),
        run: list!(storage::templates),
    }
    .tool(),
];
