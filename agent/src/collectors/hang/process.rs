//! Process checks of a rank between its steps: threads and children in uninterruptible sleep, and dead children that it
//! does not wait for.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{Classification, EvidenceBody, EvidenceSource, RankRef, Role};

use super::{HangCollector, ObservedRanks};
use crate::mount_users::MountTable;
use crate::pending_evidence::{PendingEvidence, mark, sample};
use crate::stacks::{ChildProcess, ChildProcesses, KernelState, file_waited_for};

/// Time for which a task is blocked before it is reported: well below the kernel's own limit for hung tasks, 120 s.
const BLOCKED: Duration = Duration::from_secs(15);
/// Most processes of a rank that are checked.
const PROCESSES: usize = 256;
/// Most dead children that are named.
const NAMED: usize = 8;
/// Number of dead children from which they are reported however they ended, because they use up process slots and
/// memory.
const MANY: usize = 32;

/// Thread or process in uninterruptible sleep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlockedTask {
    since: Instant,
    /// Context switches at the first poll; a further one means that the task was woken.
    switches: u64,
    /// Set once reported, with the mount that it waits for, if known.
    told: Option<Option<String>>,
}

/// Task that may sleep: the rank's main thread, another of its threads, or a child.
struct RankTask {
    id: u32,
    folder: PathBuf,
    /// Name in reports.
    who: String,
}

/// Counts of dead children at the last search and in the last report.
#[derive(Debug, Default)]
pub(super) struct DeadChildren {
    before: usize,
    told: usize,
}

impl HangCollector {
    /// Checks the rank's main thread, at every poll.
    pub(super) fn sleeper(&self, seen: &mut ObservedRanks, rank: &RankRef, pid: u32, now: Instant) {
        let task = RankTask {
            id: pid,
            folder: self.proc_root.join(pid.to_string()),
            who: "the rank".to_owned(),
        };
        self.watch(seen, rank, &task, now);
    }

    /// Checks its other threads and its children, which reads a file for each.
    pub(super) fn search(
        &self,
        seen: &mut ObservedRanks,
        rank: &RankRef,
        pid: u32,
        children: &ChildProcesses<'_>,
        now: Instant,
    ) {
        let folder = self.proc_root.join(pid.to_string());
        let threads = KernelState::of(&self.proc_root, pid).map_or_else(Vec::new, |standing| standing.blocked);
        let threads = threads
            .iter()
            .filter(|thread| thread.thread != pid)
            .map(|thread| RankTask {
                id: thread.thread,
                folder: folder.join("task").join(thread.thread.to_string()),
                who: format!("the rank's thread {} ({})", thread.thread, thread.name),
            });
        let children = children.below(pid, PROCESSES);
        let asleep = children
            .iter()
            .filter(|child| child.state == 'D')
            .map(|child| RankTask {
                id: child.pid,
                folder: self.proc_root.join(child.pid.to_string()),
                who: format!("the rank's child {child}"),
            });
        let tasks: Vec<RankTask> = threads.chain(asleep).collect();
        for task in &tasks {
            self.watch(seen, rank, task, now);
        }
        // A task that is no longer found asleep was woken.
        let here = |id: u32| id == pid || tasks.iter().any(|task| task.id == id);
        let woken: Vec<_> = seen
            .blocked
            .keys()
            .filter(|(of, id)| of == rank && !here(*id))
            .cloned()
            .collect();
        for key in woken {
            if let Some(sleep) = seen.blocked.remove(&key) {
                self.woken(rank, sleep, "a thread or child of the rank", now);
            }
        }
        self.dead(seen, rank, pid, &children);
    }

    fn watch(&self, seen: &mut ObservedRanks, rank: &RankRef, task: &RankTask, now: Instant) {
        let key = (rank.clone(), task.id);
        let switches = blocked(&task.folder);
        let known = seen.blocked.get(&key).map(|sleep| sleep.switches);
        if known != switches
            && let Some(sleep) = seen.blocked.remove(&key)
        {
            self.woken(rank, sleep, &task.who, now);
        }
        let Some(switches) = switches else { return };
        let sleep = seen.blocked.entry(key).or_insert(BlockedTask {
            since: now,
            switches,
            told: None,
        });
        let lasts = now.saturating_duration_since(sleep.since);
        if lasts < BLOCKED || sleep.told.is_some() {
            return;
        }
        let Some(standing) = KernelState::of_task(&task.folder) else {
            return;
        };
        let says = self.waits(rank, &task.folder, &standing);
        let place = says.fields.get("mount").map(str::to_owned);
        sleep.told = Some(place);
        let who = &task.who;
        let mut text = format!(
            "{who} is {standing} for {} s, and no signal reaches it",
            lasts.as_secs()
        );
        let field = |name: &str| says.fields.get(name);
        if let (Some(file), Some(mount), Some(device), Some(kind)) =
            (field("file"), field("mount"), field("device"), field("filesystem"))
        {
            text.push_str(&format!("; it waits for {file} on {mount} ({device}, {kind})"));
        }
        self.roster.blocked(rank, Some(text.clone()));
        self.line(rank, text, blocked_threads(&self.proc_root, task), says);
    }

    /// Classifies a blocked task: a hung file system if its system call waits for a file, else a hung task.
    fn waits(&self, rank: &RankRef, folder: &Path, standing: &KernelState) -> Classification {
        let file = file_waited_for(folder);
        let process = folder.strip_prefix(&self.proc_root).ok();
        let process = process.and_then(|own| own.components().next());
        let process = process.map_or_else(String::new, |first| first.as_os_str().to_string_lossy().into_owned());
        let table = MountTable::read(&self.proc_root, &process);
        let mount = file
            .as_ref()
            .and_then(|file| table.as_ref().and_then(|table| table.holding(file)));
        let mut says = match mount {
            Some(_) => mark(classes::FILESYSTEM_HANG, Role::Root, 0.65, "ranks.blocked"),
            None => mark(classes::HUNG_TASK, Role::Confirmation, 0.6, "ranks.blocked"),
        };
        let fields = [
            ("wchan", standing.wchan.clone()),
            ("syscall", standing.syscall.clone()),
            ("file", file.clone()),
            ("mount", mount.map(|mount| mount.place.clone())),
            ("device", mount.map(|mount| mount.source.clone())),
            ("filesystem", mount.map(|mount| mount.kind.clone())),
            ("used_by", mount.map(|_| format!("{}/{}", rank.job, rank.rank))),
        ];
        let known = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        says.fields.extend(known);
        says
    }

    fn woken(&self, rank: &RankRef, sleep: BlockedTask, who: &str, now: Instant) {
        let Some(place) = sleep.told else { return };
        self.roster.blocked(rank, None);
        let lasts = now.saturating_duration_since(sleep.since);
        let text = format!("{who} is no longer blocked, after {} s", lasts.as_secs());
        // Diagnosis matches this signature to end the wait.
        let mut says = mark(classes::NONE, Role::Noise, 0.9, "ranks.woken");
        says.fields.extend(place.map(|place| ("mount".to_owned(), place)));
        self.line(rank, text, Vec::new(), says);
    }

    /// Reports children that were dead at two searches, and again when their number has doubled. Helpers that come and
    /// go are waited for in between.
    fn dead(&self, seen: &mut ObservedRanks, rank: &RankRef, pid: u32, children: &[ChildProcess]) {
        let own = |child: &&ChildProcess| child.parent == pid && child.state == 'Z';
        let all: Vec<&ChildProcess> = children.iter().filter(own).collect();
        let known = seen.dead.entry(rank.clone()).or_default();
        let lasting = all.len().min(known.before);
        known.before = all.len();
        self.roster.dead_children(rank, lasting);
        if lasting == 0 && known.told > 0 {
            known.told = 0;
            let entity = self.roster.entity(rank);
            self.intake.push(sample(
                EvidenceSource::Ranks,
                entity,
                "ranks.dead_children",
                0.0,
                "count",
            ));
        }
        if lasting == 0 || lasting < known.told * 2 {
            return;
        }
        known.told = lasting;
        let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
        let text = format!(
            "{} of the rank's children have ended and it does not wait for them: {}{}",
            all.len(),
            named.join("; "),
            if all.len() > NAMED { "; ..." } else { "" }
        );
        match deaths(&all) {
            Some(says) => self.line(rank, text, Vec::new(), says),
            None => {
                let entity = self.roster.entity(rank);
                let lasting = lasting as f64;
                self.intake.push(sample(
                    EvidenceSource::Ranks,
                    entity,
                    "ranks.dead_children",
                    lasting,
                    "count",
                ));
            }
        }
    }

    pub(super) fn line(&self, rank: &RankRef, text: String, context: Vec<String>, says: Classification) {
        let body = EvidenceBody::Line {
            text,
            context,
            repeats: 1,
        };
        let sighting = PendingEvidence::now(EvidenceSource::Ranks, self.roster.entity(rank), body);
        self.intake.push(sighting.marked(vec![says]));
    }
}

/// Classifies dead children that are not waited for, as a confirmation of what ended them; none for a few that ended
/// well.
fn deaths(all: &[&ChildProcess]) -> Option<Classification> {
    let failed = all.iter().find(|child| child.ended.is_some());
    let (class, confidence) = match failed {
        Some(child) if child.name.starts_with("pt_data_worker") => (classes::DATALOADER_WORKER_CRASH, 0.5),
        Some(_) => (classes::SUBPROCESS_FAILED, 0.4),
        None if all.len() >= MANY => (classes::RESOURCE_CONTENTION, 0.3),
        None => return None,
    };
    let mut says = mark(class, Role::Confirmation, confidence, "ranks.dead_children");
    says.fields.insert("children".to_owned(), all.len().to_string());
    // The kernel's own line about a kill names the process too.
    if let Some(child) = failed {
        says.fields.insert("pid".to_owned(), child.pid.to_string());
    }
    Some(says)
}

/// Returns the threads of the task's process that are blocked too.
fn blocked_threads(proc_root: &Path, task: &RankTask) -> Vec<String> {
    let standing = KernelState::of(proc_root, task.id);
    standing.map_or_else(Vec::new, |standing| {
        standing.blocked.iter().map(ToString::to_string).collect()
    })
}

/// Returns the voluntary context switches of a task in uninterruptible sleep; none in another state.
fn blocked(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("status")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:").filter(|state| state.starts_with('D'))?;
    field("voluntary_ctxt_switches:")?.parse().ok()
}
