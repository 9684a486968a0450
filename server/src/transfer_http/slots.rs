//! How many transfers one node runs at a time: a queue a node, first come first served, so that a busy node starves no other
//! and nobody overtakes. The number may change with every reload and holds from the next transfer on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// The queues of every node.
#[derive(Debug, Default)]
pub struct Slots {
    nodes: Mutex<HashMap<(String, String), Node>>,
}

#[derive(Debug, Default)]
struct Node {
    running: usize,
    at_once: usize,
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// One transfer's place on a node, given back on drop.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    node: (String, String),
}

impl Slots {
    /// Waits for a place on a node of a cluster, where `at_once` may run at a time.
    pub async fn enter(self: &Arc<Self>, cluster: &str, node: &str, at_once: usize) -> Option<Slot> {
        let key = (cluster.to_owned(), node.to_owned());
        let queued = {
            let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = nodes.entry(key.clone()).or_default();
            entry.at_once = at_once;
            // A limit that was raised lets those in who wait already; whoever comes now is behind them.
            let (sender, receiver) = oneshot::channel();
            entry.waiting.push_back(sender);
            receiver
        };
        self.admit(&key);
        queued.await.ok()
    }

    /// Lets those at the head of the queue in while there is room.
    fn admit(self: &Arc<Self>, key: &(String, String)) {
        loop {
            let next = {
                let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(node) = nodes.get_mut(key) else { return };
                if node.running >= node.at_once {
                    return;
                }
                let Some(next) = node.waiting.pop_front() else {
                    if node.running == 0 {
                        nodes.remove(key);
                    }
                    return;
                };
                node.running += 1;
                next
            };
            // Whoever has stopped waiting gives the place back by dropping it, outside the lock.
            let _gone = next.send(Slot { slots: self.clone(), node: key.clone() });
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut nodes = self.slots.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(node) = nodes.get_mut(&self.node) {
                node.running = node.running.saturating_sub(1);
            }
        }
        self.slots.admit(&self.node);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn sh_14_a_hundred_pushes_to_one_node_run_four_at_a_time_in_order_and_starve_nobody() {
        let slots = Arc::new(Slots::default());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..100 {
            let (slots, running, most, order) = (slots.clone(), running.clone(), most.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let slot = slots.enter("alpha", "pve1", 4).await.unwrap();
                order.lock().unwrap().push(number);
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                drop(slot);
            }));
        }
        // Another node is not behind them.
        let other = slots.enter("alpha", "pve2", 4).await.unwrap();
        assert!(order.lock().unwrap().len() < 100);
        drop(other);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 4);
        assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert!(slots.nodes.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_changed_limit_holds_from_the_next_one_on_and_who_leaves_the_queue_blocks_nobody() {
        let slots = Arc::new(Slots::default());
        let first = slots.enter("a", "n", 1).await.unwrap();
        let mut second = Box::pin(slots.enter("a", "n", 1));
        assert!(futures_poll(&mut second).await.is_none());
        // Raised to three: the one who waits and the one who comes both get in.
        let third = slots.enter("a", "n", 3).await.unwrap();
        let second = second.await.unwrap();
        let mut fourth = Box::pin(slots.enter("a", "n", 3));
        assert!(futures_poll(&mut fourth).await.is_none());
        drop(fourth);
        drop((first, second));
        let fifth = slots.enter("a", "n", 2).await.unwrap();
        drop((third, fifth));
        assert!(slots.nodes.lock().unwrap().is_empty());
    }

    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(out) => std::task::Poll::Ready(Some(out)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
