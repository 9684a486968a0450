//! At start: what became of the sets that were being applied when the server stopped?

use std::sync::Arc;

use super::{Changes, ChangesError};
use crate::app::App;

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
            app.tracker.spawn(async move {
                let id = set.id();
                changes.recover(&app_of_task, set).await;
                tracing::info!(change_set = %id, "looked at an apply that was interrupted");
            });
        }
        Ok(count)
    }
}
