//! Where tasks are kept.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;

use super::TaskRecord;

/// Why a task was not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// This caller, or all of them together, have too many.
    #[error("too many tasks are kept for this caller; wait for one to end and expire, or cancel one")]
    Full,
    /// The store itself failed.
    #[error("the task store failed: {0}")]
    Failed(String),
}

/// Keeps tasks by id. What [`Store::insert`] has taken must be found by every later [`Store::load`]: a client may
/// ask for its task the moment it has the id.
///
/// The running part of a task lives in the process. A store that outlives the process must make tasks that were
/// not over when it stopped `Failed`.
pub trait Store: Send + Sync + fmt::Debug {
    /// Keeps a new task.
    ///
    /// # Errors
    /// [`StoreError`]; the task is then not started.
    fn insert(&self, task: TaskRecord, now: Timestamp) -> Result<(), StoreError>;

    /// The task of that id, unless it is past its lifetime.
    fn load(&self, id: &str, now: Timestamp) -> Option<TaskRecord>;

    /// Changes a task in one step that no other change comes between. Terminal tasks must not be changed; says
    /// the new record if it was changed.
    fn change(&self, id: &str, now: Timestamp, change: &mut dyn FnMut(&mut TaskRecord))
    -> Option<TaskRecord>;
}

/// Keeps tasks in memory, bounded. A restart forgets them.
#[derive(Debug)]
pub struct MemoryStore {
    tasks: Mutex<HashMap<String, TaskRecord>>,
    most: usize,
    most_per_owner: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(4096, 64)
    }
}

impl MemoryStore {
    /// A store of at most `most` tasks, and `most_per_owner` of one caller.
    #[must_use]
    pub fn new(most: usize, most_per_owner: usize) -> Self {
        Self { tasks: Mutex::default(), most, most_per_owner }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, TaskRecord>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn insert(&self, task: TaskRecord, now: Timestamp) -> Result<(), StoreError> {
        let mut tasks = self.lock();
        tasks.retain(|_, known| !known.is_expired(now));
        let own = tasks.values().filter(|known| known.owner == task.owner).count();
        if own >= self.most_per_owner || tasks.len() >= self.most {
            // A task that is over makes room, the caller's own first to have ended.
            let oldest = tasks
                .values()
                .filter(|known| known.owner == task.owner && known.status.is_terminal())
                .min_by_key(|known| known.updated)
                .map(|known| known.id.clone());
            match oldest {
                Some(id) => drop(tasks.remove(&id)),
                None => return Err(StoreError::Full),
            }
        }
        tasks.insert(task.id.clone(), task);
        Ok(())
    }

    fn load(&self, id: &str, now: Timestamp) -> Option<TaskRecord> {
        self.lock().get(id).filter(|task| !task.is_expired(now)).cloned()
    }

    fn change(
        &self,
        id: &str,
        now: Timestamp,
        change: &mut dyn FnMut(&mut TaskRecord),
    ) -> Option<TaskRecord> {
        let mut tasks = self.lock();
        let task = tasks.get_mut(id).filter(|task| !task.is_expired(now) && !task.status.is_terminal())?;
        change(task);
        task.updated = now;
        Some(task.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tasks::{TaskOptions, TaskStatus};

    fn task(id: &str, owner: &str) -> TaskRecord {
        TaskRecord::new(id.into(), owner.into(), TaskOptions::default(), Timestamp::UNIX_EPOCH)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn one_caller_cannot_fill_the_store_and_ended_tasks_make_room() {
        let store = MemoryStore::new(3, 2);
        store.insert(task("1", "a"), at(0)).unwrap();
        store.insert(task("2", "a"), at(0)).unwrap();
        assert_eq!(store.insert(task("3", "a"), at(0)), Err(StoreError::Full));
        store.insert(task("4", "b"), at(0)).unwrap();
        assert_eq!(store.insert(task("5", "c"), at(0)), Err(StoreError::Full));
        store.change("1", at(1), &mut |task| task.status = TaskStatus::Cancelled).unwrap();
        store.insert(task("3", "a"), at(1)).unwrap();
        assert_eq!(store.load("1", at(1)), None);
        assert!(store.load("3", at(1)).is_some());
    }

    #[test]
    fn ended_tasks_do_not_change_and_expired_ones_are_gone() {
        let store = MemoryStore::default();
        store.insert(task("1", "a"), at(0)).unwrap();
        let mut cancel = |task: &mut TaskRecord| task.status = TaskStatus::Cancelled;
        assert!(store.change("1", at(1), &mut cancel).is_some());
        let mut revive = |task: &mut TaskRecord| task.status = TaskStatus::Working;
        assert_eq!(store.change("1", at(2), &mut revive), None);
        let lifetime = i64::try_from(Duration::from_secs(3600).as_secs()).unwrap();
        assert!(store.load("1", at(lifetime - 1)).is_some());
        assert_eq!(store.load("1", at(lifetime)), None);
    }
}
