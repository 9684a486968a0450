//! Workers that do something to one guest.

use std::path::Path;

use crate::api::handlers::Call;
use crate::api::reply::Answer;
use crate::cluster::{Done, Spawn, guest_folder};
use crate::config::GuestKind;
use crate::node::files;
use crate::state::State;

/// A worker on the node and for the guest of a call. While it runs the guest is locked with a word, if one is given;
/// a guest that is locked already makes it fail.
pub(crate) fn for_guest(
    call: &Call<'_>,
    kind: GuestKind,
    verb: &str,
    lock: Option<&'static str>,
    work: impl FnOnce(&mut State, &str, u32) -> Result<Vec<String>, String> + Send + 'static,
) -> Answer {
    // Verbs that carry no prefix are the same for both kinds.
    let named = match verb {
        "resize" | "hamigrate" => verb.to_owned(),
        "migrate" if kind == GuestKind::Qemu => "qmigrate".to_owned(),
        _ => format!("{}{verb}", kind.worker()),
    };
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    let place = node.clone();
    Answer::Worker(Spawn {
        node,
        kind: named,
        id: vmid.to_string(),
        who: call.token.to_owned(),
        lock: lock.map(|word| (vmid, word)),
        work: Box::new(move |state| work(state, &place, vmid).map(|log| Done { log, then: None })),
    })
}

/// The empty file system of a new guest.
pub(crate) fn make_folder(root: &Path, vmid: u32, generation: u32) -> Result<(), String> {
    let folder = guest_folder(root, vmid, generation);
    files::populate(&folder, &files::guest_skeleton()).map_err(|error| error.to_string())
}
