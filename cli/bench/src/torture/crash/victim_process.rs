//! Victim processes: each does one part of a save and kills itself at a given place.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention::collect;
use rankguard_checkpoint::store::disk::{self, CallFault, FaultSource, FileOperation};
use rankguard_checkpoint::{Arena, Store};
use rankguard_console::out;
use rankguard_model::ShardSeal;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::scene::KEPT;
use crate::torture::TortureError;
use crate::torture::subject::{TortureJob, persist, take};

/// Operation of a victim. Its arena or window, if it needs one, is its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VictimTask {
    pub(crate) subject: TortureJob,
    pub(crate) id: CheckpointId,
    pub(crate) part: SavePart,
    /// Place of its death: number of system calls of its phase before it, and the finished part of a write, in
    /// thousandths.
    pub(crate) death: Option<(u64, u64)>,
}

/// A part of a save.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum SavePart {
    /// Fill and seal a slot.
    Fill { rank: u32, slot: u32 },
    /// Write a sealed slot; the death occurs in files with this ending.
    Write {
        store: PathBuf,
        parent: Option<CheckpointId>,
        slot: u32,
        ending: String,
    },
    /// Stream an image through a window to its reader, and seal it.
    Pass { rank: u32 },
    /// Write the image that streams through a window; the death occurs in files with this ending.
    Take { store: PathBuf, ending: String },
    /// Commit, and then remove what retention does not keep; the death occurs in one of the two.
    Commit {
        store: PathBuf,
        parent: Option<CheckpointId>,
        seals: Vec<ShardSeal>,
        removing: bool,
    },
}

/// Messages of a victim at the start and end of its phase, and after a commit.
pub(crate) const BEGIN: &str = "begin";
pub(crate) const END: &str = "end";
pub(crate) const COMMITTED: &str = "committed";

/// Runs a victim. Lines on standard output report its progress.
pub fn run(errand: &VictimTask) -> Result<(), TortureError> {
    let VictimTask {
        subject,
        id,
        part,
        death,
    } = errand;
    match part {
        SavePart::Fill { rank, slot } => {
            let arena = arena()?;
            // The data is prepared, as a trainer's tensors are; the phase is the copy only.
            let fill = subject.filling(*id, *rank);
            report_line(BEGIN)?;
            fill.into_slot(&arena, *slot)?;
            report_line(END)
        }
        SavePart::Pass { rank } => {
            let arena = arena()?;
            let fill = subject.filling(*id, *rank);
            let streaming = fill.announce(&arena)?;
            report_line(BEGIN)?;
            fill.pass(&arena, streaming)?;
            report_line(END)
        }
        SavePart::Write {
            store,
            parent,
            slot,
            ending,
        } => {
            let arena = arena()?;
            let store = Store::at(store);
            let image = arena.sealed(*slot)?;
            report_seal(&run_counted(ending, *death, || persist(&store, &image, *parent))?)
        }
        SavePart::Take { store, ending } => {
            let arena = arena()?;
            let store = Store::at(store);
            // The rank that streams to this process dies with it, never before.
            let taken = run_counted(ending, *death, || take(&store, &arena, id.generation, &|| false));
            report_seal(&taken?)
        }
        SavePart::Commit {
            store,
            parent,
            seals,
            removing,
        } => {
            let store = Store::at(store);
            let manifest = subject.manifest(*id, *parent, seals)?;
            let commit = || {
                store.commit(&manifest)?;
                report_line(COMMITTED)
            };
            if !*removing {
                return run_counted("", *death, commit);
            }
            commit()?;
            run_counted("", *death, || {
                let left = collect(&store, &subject.job, KEPT, &[])?.problems;
                match left.first() {
                    Some(problem) => Err(TortureError(problem.to_string())),
                    None => Ok(()),
                }
            })
        }
    }
}

/// Runs the work of a phase: reports its start and end, and the number of system calls on files with this ending.
fn run_counted<T>(
    ending: &str,
    death: Option<(u64, u64)>,
    work: impl FnOnce() -> Result<T, TortureError>,
) -> Result<T, TortureError> {
    let reaper = KillCounter::watching(ending, death);
    report_line(BEGIN)?;
    reaper.begin();
    let done = work()?;
    let calls = reaper.end();
    report_line(END)?;
    report_line(&calls.to_string())?;
    Ok(done)
}

/// Reports a sealed shard.
fn report_seal(seal: &ShardSeal) -> Result<(), TortureError> {
    report_line(&serde_json::to_string(seal).map_err(TortureError::new)?)
}

/// Prints a line and flushes it.
fn report_line(line: &str) -> Result<(), TortureError> {
    out::line(line);
    Ok(out::finish()?)
}

/// Maps the arena that is the standard input of this process.
fn arena() -> Result<Arena, TortureError> {
    let fd: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok(Arena::map(fd)?)
}

/// Counter of the system calls of a phase, which kills this process at one of them.
struct KillCounter {
    /// Part of the file name that selects calls; temporary names contain it, too.
    ending: String,
    death: Option<(u64, u64)>,
    calls: AtomicU64,
    watching: AtomicU64,
}

const RESTING: u64 = 0;
const WATCHING: u64 = 1;
const DYING: u64 = 2;

static REAPER: OnceLock<KillCounter> = OnceLock::new();

impl KillCounter {
    fn watching(ending: &str, death: Option<(u64, u64)>) -> &'static Self {
        let reaper = REAPER.get_or_init(|| Self {
            ending: ending.to_owned(),
            death,
            calls: AtomicU64::new(0),
            watching: AtomicU64::new(RESTING),
        });
        disk::install(reaper);
        reaper
    }

    fn begin(&self) {
        self.watching.store(WATCHING, Ordering::Relaxed);
    }

    /// Stops counting and returns the number of calls.
    fn end(&self) -> u64 {
        self.watching.store(RESTING, Ordering::Relaxed);
        self.calls.load(Ordering::Relaxed)
    }

    fn die() -> ! {
        // SIGKILL: no destructor runs, no buffer is written.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

impl FaultSource for KillCounter {
    fn fault_for(&self, op: FileOperation, path: &Path, bytes: u64) -> Option<CallFault> {
        match self.watching.load(Ordering::Relaxed) {
            RESTING => return None,
            DYING => Self::die(),
            _ => {}
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.contains(&self.ending) {
            return None;
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (at, part) = self.death?;
        if call != at {
            return None;
        }
        if op != FileOperation::Write || part == 0 {
            Self::die();
        }
        self.watching.store(DYING, Ordering::Relaxed);
        // The write is shortened; the writer's next call, for the rest, is its last.
        Some(CallFault::Short(bytes * part / 1000))
    }
}
