//! Conversion of a triage observation to evidence: entity and time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rankguard_faults::{LogObservation, classes};
use rankguard_model::{Classification, Entity, EvidenceBody, EvidenceSource, RankRef, Role, Timestamp};

use super::gpu::XidMerger;
use super::uptime::boot_moment;
use crate::catalogue_handle::CatalogueHandle;
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::mount_users::{FailingStorage, MountUsers};
use crate::pending_evidence::{PendingEvidence, ReaderCursor};
use crate::roster::RankRoster;
use crate::spool::Spool;

/// Field of a classification that names a process outside all jobs of the node.
const FOREIGN_PROCESS: &str = "foreign_process";

/// First namespace of process numbers (`PROC_PID_INIT_INO` of the kernel).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Writer of the lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LineOrigin {
    /// Kernel of this node.
    Kernel,
    /// A rank of this node.
    Rank(RankRef),
    /// Unknown rank of a job.
    Unknown,
}

/// State shared by all line readers: roster, intake and spool. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LineReporter {
    pub(crate) source: EvidenceSource,
    pub(crate) intake: EvidenceIntake,
    pub(crate) roster: RankRoster,
    pub(crate) spool: Arc<Spool>,
    pub(crate) xids: XidMerger,
    pub(crate) knowledge: CatalogueHandle,
    pub(crate) uses: MountUsers,
}

impl LineReporter {
    /// Builds the evidence for an observation that was read at `read`. `live` is true if its lines were written just
    /// before.
    pub(crate) fn sighting(
        &self,
        writer: &LineOrigin,
        observation: LogObservation,
        read: Timestamp,
        live: bool,
    ) -> PendingEvidence {
        let entity = self.entity(writer, &observation);
        let at = moment(observation.at, read, live);
        let is_over = *writer == LineOrigin::Kernel && !live && is_of_earlier_boot(at, boot_moment());
        let LogObservation {
            text,
            context,
            repeats,
            mut marks,
            device,
            ..
        } = observation;
        if *writer == LineOrigin::Kernel {
            self.xids.line(clock::steady(), device.as_ref(), &mut marks);
            // The users of a disk or server at the time of an old line are unknown.
            if live {
                self.who_uses(&text, &mut marks);
                self.note_foreign_processes(&mut marks);
            }
        }
        if is_over {
            end_faults(&mut marks);
        }
        PendingEvidence::now(self.source, entity, EvidenceBody::Line { text, context, repeats })
            .at(at)
            .marked(marks)
            .urgent()
    }

    /// Adds the users of the disk or server that the kernel names to each storage classification.
    fn who_uses(&self, text: &str, marks: &mut [Classification]) {
        for mark in marks {
            let layer = self
                .knowledge
                .with_catalogue(|catalogue| catalogue.class(&mark.class).map(|class| class.layer.clone()));
            if layer.is_none_or(|layer| layer != "storage") && mark.class.as_str() != classes::LOCAL_DISK_FAULT {
                continue;
            }
            let disk = || {
                mark.fields
                    .get("disk")
                    .map(str::to_owned)
                    .or_else(|| self.uses.disk_in(text))
            };
            let failing = match mark.fields.get("server") {
                Some(server) => Some(FailingStorage::Server(server.to_owned())),
                None => disk().map(FailingStorage::Disk),
            };
            if let Some(failing) = failing {
                self.uses.annotate_mark(failing, mark);
            }
        }
    }

    /// Adds to each classification that names a process whether the process is outside all jobs of this node. Nothing is
    /// added for a process that has ended, because its ancestors are unknown, nor in a container, where the numbers of
    /// processes differ from those of the kernel.
    fn note_foreign_processes(&self, marks: &mut [Classification]) {
        if !is_in_first_pid_namespace() {
            return;
        }
        for mark in marks {
            let pid = mark.fields.get("pid").and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid| self.roster.is_foreign_process(pid)) {
                mark.fields.insert(FOREIGN_PROCESS, "yes".to_owned());
            }
        }
    }

    /// Builds a gap for lost or unreadable data, with the writer's entity.
    pub(crate) fn gap(&self, writer: &LineOrigin, what: String, lost: Option<u64>) -> PendingEvidence {
        let entity = match writer {
            LineOrigin::Rank(rank) => self.roster.entity(rank),
            LineOrigin::Kernel | LineOrigin::Unknown => self.intake.node_entity(),
        };
        PendingEvidence::now(self.source, entity, EvidenceBody::Gap { what, lost })
    }

    /// Pushes the evidence of one poll as one batch; the last item carries the reader's position. A poll without
    /// evidence stores the position too if it moved.
    pub(crate) fn push(
        &self,
        mut sightings: Vec<PendingEvidence>,
        cursor: Option<ReaderCursor>,
        stored: &mut Option<ReaderCursor>,
    ) {
        let Some(last) = sightings.len().checked_sub(1) else {
            if let Some(moved) = cursor.filter(|cursor| stored.as_ref() != Some(cursor)) {
                self.intake.record_position(moved.clone());
                *stored = Some(moved);
            }
            return;
        };
        sightings[last].cursor.clone_from(&cursor);
        self.intake.push_all(sightings);
        *stored = cursor.or_else(|| stored.take());
    }

    /// Returns the last stored position of a reader.
    pub(crate) fn stored(&self, key: &str) -> Option<String> {
        self.spool.cursor(key).ok().flatten()
    }

    /// Returns the entity of a line: its device, else the rank of the process that it names, so that an OOM kill is
    /// assigned to its victim, else the writer.
    fn entity(&self, writer: &LineOrigin, observation: &LogObservation) -> Entity {
        if let LineOrigin::Rank(rank) = writer {
            // A rank also reports devices that it merely depends on; only the rank itself is certain.
            return self.roster.entity(rank);
        }
        if let Some(device) = &observation.device {
            return Entity::Device {
                node: self.intake.node().clone(),
                device: device.clone(),
            };
        }
        let pid = observation
            .marks
            .iter()
            .find_map(|mark| mark.fields.get("pid")?.parse::<u32>().ok());
        let by_number = || match writer {
            LineOrigin::Unknown => self.roster.newest_rank(observation.rank?),
            _ => None,
        };
        let rank = pid.and_then(|pid| self.roster.rank_of_pid(pid)).or_else(by_number);
        rank.map_or_else(|| self.intake.node_entity(), |rank| self.roster.entity(&rank))
    }
}

/// Marks the faults of a line as over: a boot has ended them.
pub(super) fn end_faults(marks: &mut [Classification]) {
    for mark in marks.iter_mut().filter(|mark| mark.role == Role::Root) {
        mark.role = Role::Confirmation;
    }
}

/// Returns true if this process has the kernel's own numbers of processes.
fn is_in_first_pid_namespace() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    namespace.is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE)
}

/// Greatest plausible difference between the stamp of a line that was just written and the read time. Beyond it the
/// stamp is not used: another time zone (these differ by at least 15 minutes), no year, or no time stamp at all.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(600);

/// Returns the time of an event: the line's own stamp if it is plausible, else the read time. Lines from before the
/// reader started may be of any age, but not from the future.
fn moment(own: Option<Timestamp>, read: Timestamp, live: bool) -> Timestamp {
    let plausible = |own: &Timestamp| {
        let late = own.since(read);
        let early = read.since(*own);
        late <= CLOCK_DIFFERENCE && (!live || early <= CLOCK_DIFFERENCE)
    };
    own.filter(plausible).unwrap_or(read)
}

/// Greatest difference between time zones: many logs stamp their lines without one.
const ZONES: Duration = Duration::from_secs(14 * 3600);

/// Returns true if a line of the kernel is of an earlier boot, in every time zone of its stamp. A boot ends the
/// faults before it, so such a line is no failure of the present.
fn is_of_earlier_boot(at: Timestamp, booted: Timestamp) -> bool {
    at.after(ZONES) < booted
}

/// Most remembered reads. Triage holds a line for a few seconds; this covers many times that.
const READS: usize = 1024;

/// Read times of lines, needed because triage holds lines back, repeated ones longest.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes {
    /// First line, time and `live` of each read, ascending.
    reads: VecDeque<(u64, Timestamp, bool)>,
    lines: u64,
}

impl ReadTimes {
    /// Records the read of the next line of the stream.
    pub(crate) fn note(&mut self, now: Timestamp, live: bool) {
        self.lines += 1;
        if self.reads.back().is_some_and(|(_, at, was)| (*at, *was) == (now, live)) {
            return;
        }
        if self.reads.len() == READS {
            self.reads.pop_front();
        }
        self.reads.push_back((self.lines, now, live));
    }

    /// Returns the read time of a line and whether it had just been written.
    pub(crate) fn of(&self, line_no: u64) -> Option<(Timestamp, bool)> {
        let found = self.reads.iter().rev().find(|(first, ..)| *first <= line_no);
        found.or(self.reads.front()).map(|(_, at, live)| (*at, *live))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn a_clock_that_cannot_be_right_is_not_used() {
        let read = Timestamp(100 * HOUR);
        let check = |own: i64, live: bool, expect: i64| {
            assert_eq!(
                moment(Some(Timestamp(own)), read, live),
                Timestamp(expect),
                "{own} {live}"
            );
        };
        let second = HOUR / 3600;
        check(100 * HOUR - second, true, 100 * HOUR - second);
        check(92 * HOUR, true, 100 * HOUR);
        check(92 * HOUR, false, 92 * HOUR);
        check(108 * HOUR, true, 100 * HOUR);
        check(108 * HOUR, false, 100 * HOUR);
        assert_eq!(moment(None, read, true), read);
    }

    #[test]
    fn a_line_is_of_an_earlier_boot_in_every_time_zone() {
        let booted = Timestamp(100 * HOUR);
        for (at, expect) in [
            (101, false),
            (100, false),
            (87, false),
            (86, false),
            (85, true),
            (0, true),
        ] {
            assert_eq!(is_of_earlier_boot(Timestamp(at * HOUR), booted), expect, "{at}");
        }
    }

    #[test]
    fn a_held_line_keeps_the_moment_it_was_read() {
        let mut times = ReadTimes::default();
        for (now, live) in [(10, false), (10, false), (20, true), (30, true)] {
            times.note(Timestamp(now), live);
        }
        assert_eq!(times.of(1), Some((Timestamp(10), false)));
        assert_eq!(times.of(2), Some((Timestamp(10), false)));
        assert_eq!(times.of(3), Some((Timestamp(20), true)));
        assert_eq!(times.of(9), Some((Timestamp(30), true)));
    }
}
