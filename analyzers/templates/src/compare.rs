//! Ranked differences between a failing run and healthy runs.
//!
//! Five patterns, after L4 (Jiang et al., FSE 2025, arXiv 2503.20263), which finds failure-indicating lines of training
//! jobs by comparison across jobs, across ranks and over time:
//!
//! - across runs: templates that are **new**, **missing**, or come in a **burst**;
//! - across streams of one group: a template that only **one** of many shows, or that **all but one** show;
//! - over time: a steady template that has **gone quiet** long before its stream ends.
//!
//! Templates of both profiles are joined into families together, so a user name that never occurred before is not new.
//! Scores are between 0 and 1 and order evidence; they are not probabilities. If a single stream shows many templates
//! (rank 0 logs for all), each of them is weak evidence.

use std::collections::BTreeMap;

use crate::alarm::alarming;
use crate::family::{TemplateFamily, families};
use crate::id::TemplateId;
use crate::novelty::{MAX_NAMES, MAX_NOVELTIES, NoveltyFinding, NoveltyKind};
use crate::profile::{LinePosition, LogStream, Template, TemplateProfile};

/// One profile's statistics of a family.
#[derive(Clone, Default)]
struct FamilyCounts<'a> {
    count: u64,
    first: Option<(LinePosition, &'a Template)>,
    last: Option<LinePosition>,
    streams: crate::marks::NumberSet,
    runs: crate::marks::NumberSet,
}

impl<'a> FamilyCounts<'a> {
    fn add(&mut self, template: &'a Template) {
        self.count = self.count.saturating_add(template.count);
        if self.first.is_none_or(|(first, _)| template.first < first) {
            self.first = Some((template.first, template));
        }
        self.last = self.last.max(Some(template.last));
        self.streams.unite(&template.streams);
        self.runs.unite(&template.runs);
    }
}

/// Family with the statistics of both profiles.
struct ComparedFamily<'a> {
    family: &'a TemplateFamily,
    aliases: Vec<TemplateId>,
    alarming: bool,
    failing: FamilyCounts<'a>,
    healthy: FamilyCounts<'a>,
}

/// Returns evidence in `failing` relative to `healthy`, strongest first, at most [`MAX_NOVELTIES`].
///
/// With an empty `healthy` only the patterns across streams apply. Counts are compared as shares of all lines (those of
/// start-up as counts a run), so runs of different length are comparable; templates that healthy runs show only after
/// the length of the failing run do not count as missing. Both profiles must pass [`TemplateProfile::check`].
pub fn compare(failing: &TemplateProfile, healthy: &TemplateProfile) -> Vec<NoveltyFinding> {
    let mut texts: Vec<&str> = failing
        .templates
        .iter()
        .chain(&healthy.templates)
        .map(|t| t.text.as_str())
        .collect();
    texts.sort_unstable();
    texts.dedup();
    let families = families(&texts);
    let mut both: Vec<ComparedFamily> = families
        .iter()
        .map(|family| {
            let aliases: Vec<TemplateId> = match family.members.as_slice() {
                [_] => Vec::new(),
                members => members
                    .iter()
                    .take(MAX_NAMES)
                    .map(|member| TemplateId::of(texts[*member]))
                    .collect(),
            };
            let alarming = alarming(&family.text) || family.members.iter().any(|member| alarming(texts[*member]));
            ComparedFamily {
                family,
                aliases,
                alarming,
                failing: FamilyCounts::default(),
                healthy: FamilyCounts::default(),
            }
        })
        .collect();
    let mut family_of = vec![0; texts.len()];
    for (number, family) in families.iter().enumerate() {
        family.members.iter().for_each(|member| family_of[*member] = number);
    }
    let number = |template: &Template| {
        texts
            .binary_search(&template.text.as_str())
            .map(|member| family_of[member])
    };
    for template in &failing.templates {
        if let Ok(number) = number(template) {
            both[number].failing.add(template);
        }
    }
    for template in &healthy.templates {
        if let Ok(number) = number(template) {
            both[number].healthy.add(template);
        }
    }
    let scene = ProfilePair { failing, healthy };
    let mut found: Vec<NoveltyFinding> = both.iter().filter_map(|both| scene.across_runs(both)).collect();
    found.extend(scene.across_streams(&both));
    found.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(a.kind.cmp(&b.kind))
            .then(a.template.cmp(&b.template))
    });
    found.truncate(MAX_NOVELTIES);
    found
}

/// Family that some streams of a group show, and the number of streams in the group.
type FamilyShare<'a> = (&'a ComparedFamily<'a>, usize);

struct ProfilePair<'a> {
    failing: &'a TemplateProfile,
    healthy: &'a TemplateProfile,
}

impl ProfilePair<'_> {
    /// Builds evidence about streams of the failing run; `concerned` are their numbers.
    fn novelty(
        &self,
        both: &ComparedFamily,
        kind: NoveltyKind,
        score: f64,
        concerned: &[u32],
        sentence: String,
    ) -> NoveltyFinding {
        let (profile, side) = match both.failing.first {
            Some(_) => (self.failing, &both.failing),
            None => (self.healthy, &both.healthy),
        };
        let named = if kind == NoveltyKind::Missing {
            self.healthy
        } else {
            self.failing
        };
        let name = |number: u32| {
            named
                .streams
                .get(number as usize)
                .map_or_else(String::new, |stream| stream.name.clone())
        };
        let (place, example) = side
            .first
            .map_or((LinePosition { line: 0, stream: 0 }, ""), |(place, template)| {
                (place, template.example.as_str())
            });
        NoveltyFinding {
            kind,
            id: both.family.id(),
            aliases: both.aliases.clone(),
            template: both.family.text.clone(),
            score: score.clamp(0.0, 1.0),
            failing: both.failing.count,
            healthy: both.healthy.count,
            streams: concerned.iter().take(MAX_NAMES).map(|number| name(*number)).collect(),
            stream_count: concerned.len(),
            stream: profile
                .streams
                .get(place.stream as usize)
                .map_or_else(String::new, |stream| stream.name.clone()),
            line: place.line,
            example: example.to_owned(),
            sentence,
        }
    }

    /// Returns the first that applies of new, missing, burst and quiet.
    fn across_runs(&self, both: &ComparedFamily) -> Option<NoveltyFinding> {
        let runs = self.healthy.runs.len();
        if self.healthy.lines == 0 || self.failing.lines == 0 {
            return None;
        }
        let trust = runs as f64 / (runs as f64 + 0.5);
        let concerned: Vec<u32> = both.failing.streams.iter().collect();
        if both.healthy.count == 0 {
            let (place, _) = both.failing.first?;
            let late = share(place, &self.failing.streams);
            let few = self
                .peers(both)
                .is_some_and(|(shown, peers)| peers >= 3 && shown * 4 <= peers);
            let score = 0.5
                + if both.alarming { 0.25 } else { 0.0 }
                + if few { 0.1 } else { 0.0 }
                + if late >= 0.8 { 0.1 } else { 0.0 };
            let sentence = format!(
                "new: none of {} shows it; {} here on {}, first at {:.0} % of its stream",
                counted(runs, "healthy run"),
                counted(both.failing.count, "line"),
                counted(concerned.len(), "stream"),
                100.0 * late,
            );
            return Some(self.novelty(both, NoveltyKind::New, score * trust, &concerned, sentence));
        }
        let expected = self.expected(both);
        let shown = both.healthy.runs.len();
        if both.failing.count == 0 {
            return self.missing(both, expected, shown as f64 / runs.max(1) as f64, trust);
        }
        let times = (both.failing.count as f64 + 0.5) / (expected + 0.5);
        if both.failing.count >= 8 && times >= 4.0 {
            let score = (0.3 + 0.05 * (times / 4.0).log2()).min(0.55) + if both.alarming { 0.2 } else { 0.0 };
            let sentence = format!(
                "burst: {}, {times:.0} times what {} would have at this length",
                counted(both.failing.count, "line"),
                counted(runs, "healthy run"),
            );
            return Some(self.novelty(both, NoveltyKind::Burst, score * trust, &concerned, sentence));
        }
        let (last, healthy_last) = (both.failing.last?, both.healthy.last?);
        let here = share(last, &self.failing.streams);
        let there = share(healthy_last, &self.healthy.streams);
        (both.failing.count >= 20 && here < 0.6 && there > 0.9).then(|| {
            let sentence = format!(
                "went quiet: {}, the last at {:.0} % of its stream; in healthy runs it goes on to {:.0} %",
                counted(both.failing.count, "line"),
                100.0 * here,
                100.0 * there,
            );
            self.novelty(both, NoveltyKind::WentQuiet, 0.4 * trust, &concerned, sentence)
        })
    }

    /// Returns the number of lines of a family that a healthy run would have by now: the mean count if healthy runs had
    /// their last such line by then (start-up lines occur once in a run of any length), otherwise by share of lines.
    fn expected(&self, both: &ComparedFamily) -> f64 {
        let count = both.healthy.count as f64;
        if both.healthy.last.is_some_and(|last| last.line <= self.reached()) {
            count / self.healthy.runs.len().max(1) as f64
        } else {
            count * self.failing.lines as f64 / self.healthy.lines.max(1) as f64
        }
    }

    /// Returns the length in lines of the failing run's longest stream.
    fn reached(&self) -> u64 {
        self.failing
            .streams
            .iter()
            .map(|stream| stream.lines)
            .max()
            .unwrap_or_default()
    }

    fn missing(&self, both: &ComparedFamily, expected: f64, regular: f64, trust: f64) -> Option<NoveltyFinding> {
        let (first, _) = both.healthy.first?;
        if regular < 0.8 || first.line > self.reached() {
            return None;
        }
        let concerned: Vec<u32> = both.healthy.streams.iter().collect();
        let sentence = format!(
            "missing: {} of {} show it, about {expected:.0} lines would be expected here and there is none",
            both.healthy.runs.len(),
            counted(self.healthy.runs.len(), "healthy run"),
        );
        let score = 0.4 * regular * expected / (expected + 3.0);
        Some(self.novelty(both, NoveltyKind::Missing, score * trust, &concerned, sentence))
    }

    /// Returns the number of streams that show a family, in the group of its first line, and the size of the group.
    fn peers(&self, both: &ComparedFamily) -> Option<(usize, usize)> {
        let (place, _) = both.failing.first?;
        let group = &self.failing.streams.get(place.stream as usize)?.group;
        let (shown, silent) = split(&self.failing.streams, group, both.failing.streams.iter());
        Some((shown.len(), shown.len() + silent.len()))
    }

    /// Compares each stream with its group.
    fn across_streams(&self, all: &[ComparedFamily]) -> Vec<NoveltyFinding> {
        let mut groups: Vec<&str> = self
            .failing
            .streams
            .iter()
            .map(|stream| stream.group.as_str())
            .collect();
        groups.sort_unstable();
        groups.dedup();
        // Grouped by streams: several templates on the same streams form one piece of evidence.
        let mut by_streams: BTreeMap<(NoveltyKind, Vec<u32>), Vec<FamilyShare>> = BTreeMap::new();
        for group in groups {
            for both in all.iter().filter(|both| both.failing.count > 0) {
                let (shown, silent) = split(&self.failing.streams, group, both.failing.streams.iter());
                let peers = shown.len() + silent.len();
                let few = (peers / 8).max(1);
                if peers < 3 || shown.is_empty() || silent.is_empty() {
                    continue;
                }
                let (kind, odd) = if shown.len() <= few {
                    (NoveltyKind::OnlyHere, shown)
                } else if silent.len() <= few {
                    (NoveltyKind::SilentHere, silent)
                } else {
                    continue;
                };
                // New templates are reported already, and a pattern that is uneven in healthy runs may be uneven here.
                let (known, unheard) = split(&self.healthy.streams, group, both.healthy.streams.iter());
                let even = both.healthy.count > 0 && unheard.is_empty() && known.len() >= 3;
                if self.healthy.lines == 0 || even {
                    by_streams.entry((kind, odd)).or_default().push((both, peers));
                }
            }
        }
        let mut found = Vec::new();
        for ((kind, odd), mut pieces) in by_streams {
            let discount = (pieces.len() as f64).sqrt();
            pieces.sort_by_key(|(both, _)| (!both.alarming, std::cmp::Reverse(both.failing.count)));
            let others = pieces.len() - 1;
            // The strongest represents all.
            let Some((both, peers)) = pieces.first() else { continue };
            let alarm = if both.alarming { 0.25 } else { 0.0 };
            let (verb, score) = match kind {
                // Many templates that stop on one stream support each other; many that only one stream shows do not.
                NoveltyKind::SilentHere => ("silent here", 0.45 + 0.1 * (1.0 - 1.0 / discount)),
                _ => ("only here", alarm + 0.4 / discount),
            };
            let also = if others > 0 {
                format!("; so with {}", counted(others, "other template"))
            } else {
                String::new()
            };
            let sentence = match kind {
                NoveltyKind::SilentHere => {
                    format!(
                        "{verb}: {} of {peers} do not show what the others show{also}",
                        counted(odd.len(), "stream")
                    )
                }
                _ => format!(
                    "{verb}: {} of {peers} alone shows it{also}",
                    counted(odd.len(), "stream")
                ),
            };
            found.push(self.novelty(both, kind, score, &odd, sentence));
        }
        found
    }
}

/// Returns the relative position of a place in its stream, 0 to 1.
fn share(place: LinePosition, streams: &[LogStream]) -> f64 {
    let lines = streams.get(place.stream as usize).map_or(0, |stream| stream.lines);
    if lines == 0 {
        0.0
    } else {
        (place.line as f64 / lines as f64).min(1.0)
    }
}

/// Splits the streams of a group into those among `shown` and the others.
fn split(streams: &[LogStream], group: &str, shown: impl Iterator<Item = u32>) -> (Vec<u32>, Vec<u32>) {
    let mut marks = crate::marks::NumberSet::default();
    shown.for_each(|number| marks.add(number));
    let of_group = (0..streams.len() as u32).filter(|number| streams[*number as usize].group == group);
    of_group.partition(|number| marks.has(*number))
}

fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}
