//! `subscriptions/listen` over HTTP: a stream that stays open.

use std::{sync::Arc, time::Duration};

use http::Response;
use tokio::sync::mpsc;

use super::{BoxBody, sse};
use crate::{Filter, Identity, RequestId, Stateful, events::Listener};

/// Opens the stream of what `filter` has, acknowledged first; `None` when there are too many already.
pub(super) fn open<C>(
    stateful: &Stateful<C>,
    owner: &str,
    identity: &Arc<Identity>,
    id: &RequestId,
    filter: Filter,
    keep_alive: Duration,
) -> Option<Response<BoxBody>> {
    let events = stateful.events.as_ref()?.listen();
    let permit = Arc::clone(&stateful.listeners).try_acquire_owned().ok()?;
    let filter = stateful.own_tasks(owner, filter);
    let (sender, frames) = mpsc::channel(16);
    let listener = Listener { subscription: Some(id.clone()), identity: Arc::clone(identity) };
    tokio::spawn(async move {
        if sender.send(listener.acknowledged(&filter)).await.is_ok()
            && listener.pump(events, || filter.clone(), &sender).await
        {
            // The client may be gone already; then nobody misses it.
            let _ = sender.send(listener.ended()).await;
        }
        drop(permit);
    });
    Some(sse::response(sse::Frames::messages(frames, keep_alive)))
}
