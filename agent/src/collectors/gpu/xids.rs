//! Merges the two reports of an XID, from the kernel log and from the library, into one finding.
//!
//! The kernel log carries more detail, so that an event of the library waits some seconds for the line and is dropped
//! when it comes. Without a line, as in a container without the kernel log, the event is reported itself; a later line
//! then becomes a confirmation instead of a second root. Pure except for the lock: times are inputs, of the monotonic
//! clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rankguard_model::{Classification, DeviceKind, Role, Timestamp};

use super::protocol::XidEvent;
use rankguard_model::Device;

/// Greatest time between two reports of one XID. Triage holds lines for up to two seconds, and a poll takes one or two.
const WINDOW: Duration = Duration::from_secs(5);
/// Time for which an event waits for its line.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most remembered reports: many times the XIDs that a dying node writes within the window.
const KEPT: usize = 512;

/// Recent reports of both sources. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct XidMerger(Arc<Mutex<RecentXids>>);

#[derive(Debug, Default)]
struct RecentXids {
    by_kernel: VecDeque<(Timestamp, XidEvent)>,
    /// Events that were reported because no line had come.
    by_library: VecDeque<(Timestamp, XidEvent)>,
    waiting: VecDeque<(Timestamp, XidEvent)>,
}

impl XidMerger {
    fn lock(&self) -> MutexGuard<'_, RecentXids> {
        self.0.lock().expect("no holder of the XIDs panics")
    }

    /// Records a line of the kernel log. If its event was already reported, the line's root marks become confirmations.
    pub(crate) fn line(&self, now: Timestamp, device: Option<&Device>, marks: &mut [Classification]) {
        let Some(device) = device.filter(|device| device.kind == DeviceKind::Gpu) else {
            return;
        };
        let xid = marks.iter().find_map(|mark| mark.fields.get("xid")?.parse().ok());
        let Some(xid) = xid else { return };
        let event = XidEvent {
            address: device.address.clone(),
            xid,
        };
        let mut said = self.lock();
        if take_near(&mut said.by_library, now, &event) {
            for mark in marks.iter_mut().filter(|mark| mark.role == Role::Root) {
                mark.role = Role::Confirmation;
                mark.fields
                    .insert("confirms".to_owned(), "an event of the GPU library".to_owned());
            }
            return;
        }
        if !take_near(&mut said.waiting, now, &event) {
            remember(&mut said.by_kernel, now, event);
        }
    }

    /// Takes events of the library. Returns those that waited for [`PATIENCE`] without a line of the kernel log.
    pub(super) fn events(&self, now: Timestamp, events: Vec<XidEvent>) -> Vec<(Timestamp, XidEvent)> {
        let mut said = self.lock();
        for event in events {
            if !take_near(&mut said.by_kernel, now, &event) {
                remember(&mut said.waiting, now, event);
            }
        }
        let mut alone = Vec::new();
        while said.waiting.front().is_some_and(|(at, _)| now.since(*at) >= PATIENCE) {
            let Some((at, event)) = said.waiting.pop_front() else {
                break;
            };
            remember(&mut said.by_library, now, event.clone());
            alone.push((at, event));
        }
        alone
    }
}

/// Removes the oldest equal report within the window, so that each is matched once. Returns true if there was one.
fn take_near(said: &mut VecDeque<(Timestamp, XidEvent)>, now: Timestamp, event: &XidEvent) -> bool {
    let near = said
        .iter()
        .position(|(at, other)| other == event && now.since(*at) <= WINDOW);
    near.and_then(|place| said.remove(place)).is_some()
}

fn remember(said: &mut VecDeque<(Timestamp, XidEvent)>, now: Timestamp, event: XidEvent) {
    if said.len() >= KEPT {
        said.pop_front();
    }
    said.push_back((now, event));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_evidence::mark;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * SECOND)
    }

    fn event(xid: u64) -> XidEvent {
        XidEvent {
            address: "0000:9b:00".to_owned(),
            xid,
        }
    }

    fn line(xids: &XidMerger, now: Timestamp, xid: u64) -> Role {
        let device = Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        };
        let mut says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "xid");
        says.fields.insert("xid".to_owned(), xid.to_string());
        let mut marks = [says];
        xids.line(now, Some(&device), &mut marks);
        marks[0].role
    }

    #[test]
    fn a_line_before_or_soon_after_an_event_is_the_one_finding() {
        let xids = XidMerger::default();
        assert_eq!(line(&xids, at(10), 79), Role::Root);
        assert!(xids.events(at(11), vec![event(79)]).is_empty());
        assert!(xids.events(at(60), Vec::new()).is_empty());
        assert!(xids.events(at(70), vec![event(79)]).is_empty());
        assert_eq!(line(&xids, at(72), 79), Role::Root);
        assert!(xids.events(at(80), Vec::new()).is_empty());
    }

    #[test]
    fn an_event_without_a_line_is_a_finding_and_a_late_line_confirms_it() {
        let xids = XidMerger::default();
        assert!(xids.events(at(10), vec![event(79)]).is_empty());
        assert_eq!(xids.events(at(13), Vec::new()), [(at(10), event(79))]);
        assert_eq!(line(&xids, at(14), 79), Role::Confirmation);
        // A report is matched once: the next line is a failure of its own.
        assert_eq!(line(&xids, at(15), 79), Role::Root);
    }

    #[test]
    fn other_numbers_and_old_lines_are_other_failures() {
        let xids = XidMerger::default();
        line(&xids, at(10), 48);
        xids.events(at(11), vec![event(79)]);
        assert_eq!(xids.events(at(20), Vec::new()).len(), 1);
        line(&xids, at(30), 79);
        xids.events(at(36), vec![event(79)]);
        assert_eq!(xids.events(at(40), Vec::new()).len(), 1);
    }

    #[test]
    fn a_storm_is_bounded() {
        let xids = XidMerger::default();
        for number in 0..5_000 {
            xids.events(at(10), vec![event(number)]);
        }
        assert_eq!(xids.events(at(20), Vec::new()).len(), KEPT);
    }
}
