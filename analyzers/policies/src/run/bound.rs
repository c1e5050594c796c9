//! Upper bound with knowledge of every failure.

use super::{PolicyRun, SpanEnd, TimeUse};

impl PolicyRun<'_> {
    /// Trains until the fastest checkpoint that survives the next failure must start.
    pub(super) fn train_knowing(&mut self) -> SpanEnd {
        loop {
            let rest = &self.weather.events[self.next..];
            let strike = rest.iter().find(|event| event.strike.is_some());
            let Some((at_s, strike)) = strike.and_then(|event| Some((event.at_s, event.strike.as_ref()?))) else {
                match self.spend(f64::INFINITY, TimeUse::Train) {
                    SpanEnd::Came => self.size = self.size.max(self.job.working(self.vacant)),
                    end => return end,
                }
                continue;
            };
            let quickest = self
                .outliving(&strike.lost)
                .map(|tier| (tier.ready_s(), tier.blocking_s));
            let (ready_s, stall_s) = quickest.fold((f64::INFINITY, f64::INFINITY), |best, tier| {
                (best.0.min(tier.0), best.1.min(tier.1))
            });
            let before = at_s - ready_s;
            let in_time = self.now < before;
            if in_time {
                match self.spend(before - self.now, TimeUse::Train) {
                    SpanEnd::Over => {}
                    SpanEnd::Came => {
                        self.size = self.size.max(self.job.working(self.vacant));
                        continue;
                    }
                    end => return end,
                }
            }
            // Work between this moment and the failure is lost under any policy.
            let held = self.done;
            if in_time {
                self.tiers.iter_mut().for_each(|shelf| shelf.usable = Some(held));
                match self.spend_through(self.now + stall_s, TimeUse::Save) {
                    SpanEnd::Over => {}
                    end => return end,
                }
            }
            return self.spend_through(f64::INFINITY, TimeUse::Train);
        }
    }
}
