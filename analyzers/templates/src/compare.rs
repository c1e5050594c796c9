//! Ranked differences between a failing run and healthy runs.
//!
//! Six patterns ([`NoveltyKind`]), after L4 (Jiang et al., FSE 2025, arXiv 2503.20263), which finds failure-indicating
//! lines of training jobs by comparison across jobs, across ranks and over time:
//!
//! - across runs: templates that are **new**, **missing**, or come in a **burst**;
//! - across streams of one group: a template that **few** of many streams show, or that **all but few** show;
//! - over time: a frequent template that has **gone quiet** long before its stream ends.
//!
//! Templates of both profiles are joined into families together, so that a line with a new user name is not a new
//! template. Scores are between 0 and 1 and order the findings; they are not probabilities. If a single stream shows
//! many templates of its own (rank 0 logs for all), each of them is weak evidence.

use std::collections::BTreeMap;

use crate::alarm::alarming;
use crate::family::{TemplateFamily, families};
use crate::id::TemplateId;
use crate::novelty::{MAX_NAMES, MAX_NOVELTIES, NoveltyFinding, NoveltyKind};
use crate::profile::{LinePosition, LogStream, Template, TemplateProfile};

/// Lines of a family in one profile.
#[derive(Clone, Default)]
struct FamilyCounts<'a> {
    /// Number of lines.
    count: u64,
    /// First line, and its template; `None` without lines.
    first: Option<(LinePosition, &'a Template)>,
    /// Last line.
    last: Option<LinePosition>,
    /// Streams with such a line, as indexes.
    streams: crate::marks::NumberSet,
    /// Runs with such a line, as indexes.
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

/// Family of templates with its lines in both profiles.
struct ComparedFamily<'a> {
    family: &'a TemplateFamily,
    /// Ids of its templates, at most [`MAX_NAMES`]; empty for a single template.
    aliases: Vec<TemplateId>,
    /// True if the family or one of its templates has a word that announces trouble.
    alarming: bool,
    failing: FamilyCounts<'a>,
    healthy: FamilyCounts<'a>,
}

/// Returns the findings in `failing` relative to `healthy`, highest score first, at most [`MAX_NOVELTIES`].
///
/// With an empty `healthy` only the patterns across streams apply. Counts are compared as shares of all lines (those of
/// start-up as counts per run), so that runs of different length are comparable. A template is not missing if healthy
/// runs show it only at later lines than the failing run has. Both profiles must pass [`TemplateProfile::check`].
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

/// Profiles that are compared.
struct ProfilePair<'a> {
    failing: &'a TemplateProfile,
    healthy: &'a TemplateProfile,
}

impl ProfilePair<'_> {
    /// Builds a finding about a family. `concerned` are indexes of streams: of the healthy runs for
    /// [`NoveltyKind::Missing`], else of the failing run.
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

    /// Returns the first finding that applies of new, missing, burst and gone quiet; `None` if a profile is empty.
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

    /// Returns the number of lines of a family that a healthy run of the same length has: the mean count per run if the
    /// last such line of healthy runs is within this length (start-up lines occur once in a run of any length),
    /// otherwise the share of healthy lines times the lines of the failing run.
    fn expected(&self, both: &ComparedFamily) -> f64 {
        let count = both.healthy.count as f64;
        if both.healthy.last.is_some_and(|last| last.line <= self.reached()) {
            count / self.healthy.runs.len().max(1) as f64
        } else {
            count * self.failing.lines as f64 / self.healthy.lines.max(1) as f64
        }
    }

    /// Returns the number of lines of the longest stream of the failing run.
    fn reached(&self) -> u64 {
        self.failing
            .streams
            .iter()
            .map(|stream| stream.lines)
            .max()
            .unwrap_or_default()
    }

    /// Returns a finding for a family without lines in the failing run, if at least 80 % of the healthy runs show it.
    /// `regular` is this share, and `expected` the number of lines that are missing.
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

    /// Returns findings about families that at most an eighth of the streams of a group (at least one) show, or do not
    /// show. With healthy runs, only families count that all their streams of the group show.
    fn across_streams(&self, all: &[ComparedFamily]) -> Vec<NoveltyFinding> {
        let mut groups: Vec<&str> = self
            .failing
            .streams
            .iter()
            .map(|stream| stream.group.as_str())
            .collect();
        groups.sort_unstable();
        groups.dedup();
        // Several families on the same streams form one finding.
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
                // New templates are reported by `across_runs`, and a template that not all streams of healthy runs show
                // is no evidence.
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
            // The first represents the others: alarming ones first, then by count.
            let Some((both, peers)) = pieces.first() else { continue };
            let alarm = if both.alarming { 0.25 } else { 0.0 };
            let (verb, score) = match kind {
                // More templates that one stream lacks raise the score; more that only one stream shows lower it.
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

/// Returns the relative position of a line in its stream, 0 to 1; 0 if the stream is unknown.
fn share(place: LinePosition, streams: &[LogStream]) -> f64 {
    let lines = streams.get(place.stream as usize).map_or(0, |stream| stream.lines);
    if lines == 0 {
        0.0
    } else {
        (place.line as f64 / lines as f64).min(1.0)
    }
}

/// Splits the streams of a group, as indexes, into those among `shown` and the others.
fn split(streams: &[LogStream], group: &str, shown: impl Iterator<Item = u32>) -> (Vec<u32>, Vec<u32>) {
    let mut marks = crate::marks::NumberSet::default();
    shown.for_each(|number| marks.add(number));
    let of_group = (0..streams.len() as u32).filter(|number| streams[*number as usize].group == group);
    of_group.partition(|number| marks.has(*number))
}

/// Formats a number with its noun: `1 line`, `3 lines`.
fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}
