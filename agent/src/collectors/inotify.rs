//! Inotify watcher that reports which of many open files were written to: one read for all files instead of one `stat`
//! for each.
//!
//! Only files on file systems that this machine alone writes to are watched, because the kernel does not report the
//! writes of other machines. Writes through a memory mapping are not reported either. Users of the watcher therefore
//! still poll their files at intervals.

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::fstatfs;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::wait::wait_readable;

/// Magic numbers of file systems that only this machine writes to (`linux/magic.h`): ext2 to ext4, XFS, btrfs, tmpfs,
/// ramfs, F2FS, overlay, ZFS.
const LOCAL: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0xf2f5_2010,
    0x794c_7630,
    0x2fc1_2fc1,
];

/// Buffer for events, bytes: room for some hundred events.
const EVENTS_BYTES: usize = 4096;

/// Events of one watched file.
#[derive(Debug, Default)]
struct WatchedFileEvents {
    writes: AtomicU64,
    moved: AtomicBool,
}

#[derive(Debug)]
struct WatcherShared {
    events: OwnedFd,
    watched: Mutex<HashMap<i32, Arc<WatchedFileEvents>>>,
}

impl WatcherShared {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Arc<WatchedFileEvents>>> {
        self.watched.lock().expect("no holder of the watches panics")
    }
}

/// Inotify watcher. Cheap to clone; without inotify it watches no file.
#[derive(Debug, Clone)]
pub(crate) struct InotifyWatcher(Option<Arc<WatcherShared>>);

/// Watch on one open file; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct FileWatch {
    shared: Arc<WatcherShared>,
    watch: i32,
    told: Arc<WatchedFileEvents>,
    /// Number of writes that were already handled.
    seen: u64,
}

impl InotifyWatcher {
    pub(super) fn open() -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Self(events.map(|events| {
            Arc::new(WatcherShared {
                events,
                watched: Mutex::default(),
            })
        }))
    }

    /// Watches a file. Returns none if the kernel would not report every write, or if there is no watch left.
    pub(super) fn watch(&self, file: &File) -> Option<FileWatch> {
        let shared = self.0.as_ref()?;
        let kind = u32::try_from(fstatfs(file).ok()?.f_type).ok()?;
        if !LOCAL.contains(&kind) {
            return None;
        }
        // Through the descriptor and not the path, which may name another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let wanted = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        let mut watched = shared.lock();
        let watch = inotify::add_watch(&shared.events, path, wanted).ok()?;
        let told = watched.entry(watch).or_default().clone();
        drop(watched);
        Some(FileWatch {
            shared: shared.clone(),
            watch,
            seen: told.writes.load(Ordering::Relaxed),
            told,
        })
    }

    /// Reads the pending events without blocking. Returns true if there were any.
    pub(super) fn read_events(&self) -> bool {
        let Some(shared) = &self.0 else { return false };
        let mut any = false;
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = inotify::Reader::new(&shared.events, &mut buffer);
        let watched = shared.lock();
        while let Ok(event) = events.next() {
            any = true;
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // The kernel does not report which files the dropped events belong to.
                for told in watched.values() {
                    told.writes.fetch_add(1, Ordering::Relaxed);
                    told.moved.store(true, Ordering::Relaxed);
                }
            } else if let Some(told) = watched.get(&event.wd()) {
                told.writes.fetch_add(1, Ordering::Relaxed);
                if event.events() != ReadFlags::MODIFY {
                    told.moved.store(true, Ordering::Relaxed);
                }
            }
        }
        any
    }

    /// Returns the descriptor that is readable while events are pending.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|shared| shared.events.as_fd())
    }

    /// Waits for events, at most for `most`.
    pub(super) fn wait(&self, most: Duration) {
        match self.events() {
            Some(events) => wait_readable(&events, most),
            None => std::thread::sleep(most),
        }
    }
}

impl FileWatch {
    /// True if the file was written to since [`FileWatch::mark_handled`].
    pub(super) fn has_new_writes(&self) -> bool {
        self.told.writes.load(Ordering::Relaxed) != self.seen
    }

    /// Marks all writes until now as handled; the caller reads the file next.
    pub(super) fn mark_handled(&mut self) {
        self.seen = self.told.writes.load(Ordering::Relaxed);
    }

    /// True if the file may have been renamed or removed since the watch began.
    pub(super) fn is_moved(&self) -> bool {
        self.told.moved.load(Ordering::Relaxed)
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let mut watched = self.shared.lock();
        // Two paths may name one file, which has one watch. The other two references are the map and this value.
        if Arc::strong_count(&self.told) <= 2 {
            watched.remove(&self.watch);
            // The kernel ends the watch of a removed file itself.
            let _ = inotify::remove_watch(&self.shared.events, self.watch);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_written_renamed_or_removed_is_told_of_its_own_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| dir.path().join(name));
        let mut files = paths.clone().map(|path| File::create(path).unwrap());
        let stirs = InotifyWatcher::open();
        let Some(mut one) = stirs.watch(&files[0]) else {
            // This file system is not on the list of local ones, so that no file is watched.
            return;
        };
        let two = stirs.watch(&files[1]).unwrap();
        stirs.read_events();
        assert!(!one.has_new_writes() && !two.has_new_writes());
        writeln!(files[0], "a line").unwrap();
        stirs.wait(Duration::from_secs(10));
        stirs.read_events();
        assert!(one.has_new_writes() && !one.is_moved() && !two.has_new_writes());
        one.mark_handled();
        assert!(!one.has_new_writes());
        fs::rename(&paths[0], dir.path().join("three")).unwrap();
        fs::remove_file(&paths[1]).unwrap();
        stirs.read_events();
        assert!(one.is_moved() && one.has_new_writes() && two.is_moved());
    }

    #[test]
    fn a_file_under_two_names_is_watched_until_both_watches_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = File::create(dir.path().join("one")).unwrap();
        fs::hard_link(dir.path().join("one"), dir.path().join("other")).unwrap();
        let other = File::open(dir.path().join("other")).unwrap();
        let stirs = InotifyWatcher::open();
        let (Some(first), Some(second)) = (stirs.watch(&file), stirs.watch(&other)) else {
            return;
        };
        drop(first);
        writeln!(file, "a line").unwrap();
        stirs.read_events();
        assert!(second.has_new_writes());
        drop(second);
        writeln!(file, "a line").unwrap();
        stirs.read_events();
        assert!(stirs.watch(&file).is_some_and(|third| !third.has_new_writes()));
    }

    /// Files of procfs have no writers that the kernel could report.
    #[test]
    fn a_file_of_the_kernels_own_is_not_watched() {
        let file = File::open("/proc/self/status").unwrap();
        assert!(InotifyWatcher::open().watch(&file).is_none());
    }
}
