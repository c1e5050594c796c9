//! Groups: observations that wait for repeats and for the lines that follow them.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;

use super::lane::LaneKey;
use super::limits::{CONTEXT, HOLD, IDLE, PENDING, WINDOW};
use super::observation::LogObservation;

/// Number of lines after the deciding one that still belong to it.
pub(super) const FOLLOWING: u64 = 4;

#[derive(Debug)]
pub(super) struct RepeatGroup {
    lane: LaneKey,
    observation: LogObservation,
    first: Timestamp,
    last: Timestamp,
}

impl RepeatGroup {
    pub(super) fn new(lane: LaneKey, observation: LogObservation, now: Timestamp) -> Self {
        Self {
            lane,
            observation,
            first: now,
            last: now,
        }
    }

    fn ready_at(&self) -> Timestamp {
        self.last.after(IDLE).min(self.first.after(HOLD))
    }

    /// Returns the deduplication key: two lines with the same key within [`WINDOW`] are the same event. Driver events
    /// are keyed by device, number and requested recovery, independent of channel and process; all others by their wording
    /// without numbers and the process or server they name.
    fn key(&self) -> String {
        let observation = &self.observation;
        let Some(best) = observation.marks.first() else {
            return observation.text.clone();
        };
        let field = |name: &str| best.fields.get(name).unwrap_or_default();
        let bdf = observation
            .device
            .as_ref()
            .map_or_else(|| field("bdf").to_owned(), |device| device.address.clone());
        let code = match (field("xid"), field("sxid")) {
            // The driver logs this event with and without its number.
            ("79", _) => "",
            ("", sxid) => sxid,
            (xid, _) => xid,
        };
        let what = if bdf.is_empty() {
            format!(
                "{}|{}|{}|{}",
                best.signature,
                field("pid"),
                field("server"),
                without_numbers(&observation.text)
            )
        } else {
            bdf
        };
        let who = (
            observation.rank.map(|r| r.0),
            observation.local_rank,
            observation.host.as_deref(),
        );
        let recovery = field("recovery");
        format!("{}|{:?}|{code}{recovery}|{what}|{who:?}", best.class, best.role)
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_number = false;
    for c in text.chars() {
        if c.is_ascii_digit() {
            if !in_number {
                out.push('#');
            }
            in_number = true;
        } else {
            in_number = false;
            out.push(c);
        }
    }
    out
}

#[derive(Debug, Default)]
pub(super) struct PendingGroups {
    waiting: BTreeMap<u64, RepeatGroup>,
    by_key: BTreeMap<String, u64>,
    next: u64,
    /// Lower bound of the next ready time; none if nothing waits.
    soonest: Option<Timestamp>,
}

impl PendingGroups {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a group, or counts it as a repeat of a waiting one. Returns the number of its last line.
    pub(super) fn add(&mut self, group: RepeatGroup) -> u64 {
        let last_line_no = group.observation.last_line_no;
        let key = group.key();
        if let Some(known) = self.by_key.get(&key).and_then(|id| self.waiting.get_mut(id)) {
            let gap = match (known.observation.at, group.observation.at) {
                (Some(first), Some(again)) => again.since(first),
                _ => std::time::Duration::ZERO,
            };
            if gap <= WINDOW {
                let seen = &mut known.observation;
                seen.repeats = seen.repeats.saturating_add(group.observation.repeats);
                seen.last_line_no = group.observation.last_line_no;
                known.last = group.last;
                // A clock that was set back makes it ready sooner.
                self.soonest = self.soonest.min(Some(known.ready_at()));
                return last_line_no;
            }
        }
        let ready = group.ready_at();
        self.soonest = Some(self.soonest.map_or(ready, |soonest| soonest.min(ready)));
        self.by_key.insert(key, self.next);
        self.waiting.insert(self.next, group);
        self.next += 1;
        last_line_no
    }

    /// Adds an unremarkable line of the same lane as context of the newest group.
    pub(super) fn follow(&mut self, lane: &LaneKey, text: &str, line_no: u64) {
        let Some(group) = self.waiting.values_mut().next_back() else {
            return;
        };
        let observation = &mut group.observation;
        let near = line_no.saturating_sub(observation.last_line_no) <= FOLLOWING;
        if near && group.lane == *lane && observation.context.len() < CONTEXT && !text.trim().is_empty() {
            observation
                .context
                .push(text[..text.floor_char_boundary(1024)].to_owned());
        }
    }

    /// Emits the groups that are ready at `now`, oldest first, and the oldest beyond the bound, ready or not.
    pub(super) fn take_ready(&mut self, now: Timestamp, out: &mut Vec<LogObservation>) {
        if self.soonest.is_none_or(|soonest| now < soonest) {
            return self.take_oldest(out);
        }
        let mut ready: Vec<u64> = Vec::new();
        for (id, group) in &self.waiting {
            if group.ready_at() <= now {
                ready.push(*id);
            }
        }
        let over = self.waiting.len().saturating_sub(ready.len()).saturating_sub(PENDING);
        if over > 0 {
            let early: Vec<u64> = self
                .waiting
                .keys()
                .filter(|id| !ready.contains(id))
                .take(over)
                .copied()
                .collect();
            ready.extend(early);
            ready.sort_unstable();
        }
        for id in &ready {
            if let Some(group) = self.waiting.remove(id) {
                out.push(group.observation);
            }
        }
        self.soonest = self.deadline();
        if ready.is_empty() {
            return;
        }
        self.by_key.retain(|_, id| self.waiting.contains_key(id));
        out.sort_by_key(|observation| observation.line_no);
    }

    /// Emits the oldest groups beyond the bound if none is ready: in a storm every line would otherwise search all
    /// waiting groups.
    fn take_oldest(&mut self, out: &mut Vec<LogObservation>) {
        let full = self.waiting.len() > PENDING;
        while self.waiting.len() > PENDING
            && let Some((id, group)) = self.waiting.pop_first()
        {
            let key = group.key();
            if self.by_key.get(&key) == Some(&id) {
                self.by_key.remove(&key);
            }
            out.push(group.observation);
        }
        if full {
            out.sort_by_key(|observation| observation.line_no);
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<LogObservation> {
        self.by_key.clear();
        self.soonest = None;
        let mut out: Vec<_> = std::mem::take(&mut self.waiting)
            .into_values()
            .map(|group| group.observation)
            .collect();
        out.sort_by_key(|observation| observation.line_no);
        out
    }

    /// Returns the number of the oldest line of all waiting groups.
    pub(super) fn first_line(&self) -> Option<u64> {
        self.waiting.values().map(|group| group.observation.line_no).min()
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.waiting.values().map(RepeatGroup::ready_at).min()
    }
}
