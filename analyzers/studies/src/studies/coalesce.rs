//! How many log events are left when repeats are dropped.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, Table as Canonical};
use rankguard_statistics::bursts;

use crate::error::StudyError;
use crate::outcome::{Outcome, Table};
use crate::studies::{Options, Study};

pub(super) const STUDY: Study = Study {
    name: "coalesce",
    about: "log events left when repeats within a window are dropped: anywhere, at a place, at an exact location",
    needs: "events: time, node, message",
    run,
};

/// What makes two events come from one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Anywhere.
    Any,
    /// The text before the first `:` of the location.
    Prefix,
    /// The whole location.
    Full,
}

/// Patterns of Blue Gene/L's authors that stand for more than one text: name, beginning, end. All others are the text itself.
const PATTERNS: [(&str, &str, &str); 8] = [
    ("fan read", "While reading FanModule ", ": Broken pipe"),
    ("fan speed", "While setting fan speed ", ": Broken pipe"),
    ("monitor pipe", "monitor caught ", ": Broken pipe and is stopping"),
    ("monitor power", "monitor caught ", " not present and is stopping"),
    ("pap failed", "MidplaneSwitchController::", " pap failed:"),
    ("iap failed", "MidplaneSwitchController::", " iap failed:"),
    ("power module", "No power module ", " found found on link card"),
    ("L3 error", "", "L3 major internal error"),
];

/// The pattern of the authors that a text has.
pub(crate) fn pattern(text: &str) -> Option<&'static str> {
    let fits = |(_, start, end): &&(&str, &str, &str)| text.starts_with(start) && text.ends_with(end);
    PATTERNS.iter().find(fits).map(|(name, ..)| *name)
}

/// Events of one file, in its order.
pub(crate) struct Events(Vec<(String, String, i64)>);

impl Events {
    /// Puts a name in place of each text: what is a repeat of what.
    pub(crate) fn name(&mut self, of: impl Fn(&str) -> Option<&'static str>) {
        for (_, message, _) in &mut self.0 {
            if let Some(name) = of(message) {
                name.clone_into(message);
            }
        }
    }

    /// Events whose text holds a pattern.
    pub(crate) fn with(&self, pattern: &str) -> usize {
        self.0
            .iter()
            .filter(|(_, message, _)| message.contains(pattern))
            .count()
    }

    /// Events left for a window in whole seconds.
    pub(crate) fn left(&self, place: Place, window: i64) -> usize {
        let keys = self.0.iter().map(|(location, message, time)| {
            let place = match place {
                Place::Any => "",
                Place::Prefix => location.split(':').next().unwrap_or(location),
                Place::Full => location.as_str(),
            };
            (place, message.as_str(), *time)
        });
        bursts::coalesce(keys, window).into_iter().filter(|kept| *kept).count()
    }
}

/// Events by file: a folder may hold several views of one log.
pub(crate) fn by_file(data: &Dataset) -> Result<BTreeMap<String, Events>, StudyError> {
    let times = data.f64s(Canonical::Events, "time")?;
    let messages = data.strings(Canonical::Events, "message")?;
    let locations = data
        .strings(Canonical::Events, "x_location")
        .or_else(|_| data.strings(Canonical::Events, "node"))?;
    let files = data.strings(Canonical::Events, "x_file").unwrap_or_default();
    let mut found: BTreeMap<String, Events> = BTreeMap::new();
    for (at, ((time, message), location)) in times.into_iter().zip(messages).zip(locations).enumerate() {
        let Some(time) = time else {
            continue;
        };
        let file = files.get(at).cloned().flatten().unwrap_or_default();
        found.entry(file).or_insert_with(|| Events(Vec::new())).0.push((
            location.unwrap_or_default(),
            message.unwrap_or_default(),
            time.floor() as i64,
        ));
    }
    Ok(found)
}

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let window = options.window_s.unwrap_or(600.0) as i64;
    let named = if data.source == "bgl" {
        "; the eight patterns of the authors stand for the texts that they cover"
    } else {
        ""
    };
    let definition = format!(
        "in the order of the file; a repeat has the text that its place had last, not more than {window} whole seconds ago, and moves that moment forward (sliding window){named}"
    );
    let mut outcome = Outcome::new("coalesce", data, definition);
    let mut table = Table::new(
        "events left",
        &[
            "file",
            "events",
            "anywhere",
            "at a place (before the colon)",
            "at a full location",
        ],
    );
    for (file, mut events) in by_file(data)? {
        if data.source == "bgl" {
            events.name(pattern);
        }
        table.row([
            file.into(),
            events.0.len().into(),
            events.left(Place::Any, window).into(),
            events.left(Place::Prefix, window).into(),
            events.left(Place::Full, window).into(),
        ]);
    }
    outcome.tables.push(table);
    Ok(outcome)
}
