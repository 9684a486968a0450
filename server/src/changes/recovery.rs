//! At start: what became of the sets that were being applied when the server stopped?

use std::sync::Arc;

use super::runner::record;
use super::{ApplyEnd, Changes, ChangesError};
use crate::app::App;
use crate::audit::Event;

impl Changes {
    /// Looks at every set that the store holds as applying, each in a tracked task of its own: one cluster that does not answer
    /// keeps no other from being looked at. Answers how many there are.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn recover_all(&self, app: &Arc<App>) -> Result<usize, ChangesError> {
        let sets = self.store.with(|store| store.applying()).await??;
        let count = sets.len();
        for set in sets {
            let (changes, app_of_task) = (self.clone(), app.clone());
            // Here and not in the task, so that no apply on the same guest can come before it.
            let target = set.plan().target();
            let lock = self.try_lock(&target.cluster, &target.key, set.id()).ok();
            app.tracker.spawn(async move {
                let id = set.id();
                let end = changes.recover(&app_of_task, set, lock).await;
                if let ApplyEnd::Ran(set) = end {
                    let record = record(&set, Event::ChangeRecover, &set.plan().planner().token, "")
                        .outcome(set.state().to_string());
                    if let Err(error) = app_of_task.audit.append_durable(record).await {
                        tracing::error!(change_set = %id, %error, "a recovery could not be audited");
                    }
                }
                tracing::info!(change_set = %id, "looked at an apply that was interrupted");
            });
        }
        Ok(count)
    }
}
