//! Output of cases: a short text for people, every field for machines.

use std::io::{self, Write};

use rankguard_console::display_text::count;
use rankguard_console::out::{json_line_text, json_text};
use rankguard_model::{NodeId, printable};
use rankguard_offline::OfflineCase;
use rankguard_templates::NoveltyFinding;
use serde::Serialize;

use super::{Diagnoses, Format, HealthyComparison};
use crate::second_reader::ShownReading;

/// Maximum length of a quoted line.
const WIDTH: usize = 160;

/// Prints the result of a diagnosis.
pub(super) fn print(found: &Diagnoses, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => table(found, out),
        Format::Json => json_pretty(&DiagnosisDocument::of(found), out),
        Format::Jsonl => {
            if let HealthyComparison::Novelties(novelties) = &found.novelties {
                for novelty in novelties {
                    json_line(novelty, out)?;
                }
            }
            for case in &found.cases {
                json_line(case, out)?;
            }
            for note in &found.notes {
                json_line(&serde_json::json!({"note": note}), out)?;
            }
            for reading in &found.readings {
                json_line(&serde_json::json!({"second_reader": reading}), out)?;
            }
            Ok(())
        }
    }
}

/// Result of a diagnosis as one document.
#[derive(Debug, Serialize)]
struct DiagnosisDocument<'a> {
    cases: &'a [OfflineCase],
    /// Reports that are no case, logs that do not state how their run ended, and remarks on the selection of logs.
    notes: &'a [String],
    /// Input that was not read, with the reason.
    skipped: &'a [String],
    /// Lines that healthy runs do not contain, if a comparison was requested; none if no line of a healthy run could be
    /// read.
    #[serde(skip_serializing_if = "Option::is_none")]
    novelties: Option<NoveltyList<'a>>,
    /// Answers of the second reader, if one was asked.
    #[serde(skip_serializing_if = "<[ShownReading]>::is_empty")]
    second_reader: &'a [ShownReading],
}

/// Lines that healthy runs do not contain.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum NoveltyList<'a> {
    NothingRead,
    Found(&'a [NoveltyFinding]),
}

impl<'a> DiagnosisDocument<'a> {
    fn of(found: &'a Diagnoses) -> Self {
        Self {
            cases: &found.cases,
            notes: &found.notes,
            skipped: &found.problems,
            novelties: match &found.novelties {
                HealthyComparison::NotRequested => None,
                HealthyComparison::NothingRead => Some(NoveltyList::NothingRead),
                HealthyComparison::Novelties(novelties) => Some(NoveltyList::Found(novelties)),
            },
            second_reader: &found.readings,
        }
    }
}

/// Writes an indented JSON document; characters that act on a terminal are escaped without loss.
pub(super) fn json_pretty(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", json_text(document)?)
}

/// Writes a JSON document on one line, with the same escapes.
pub(super) fn json_line(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", json_line_text(document)?)
}

fn table(found: &Diagnoses, out: &mut dyn Write) -> io::Result<()> {
    if found.cases.is_empty() && found.partial > 0 {
        writeln!(
            out,
            "No failure in what was read: {} of {} could not be read to the end.",
            found.partial,
            logs(found.streams)
        )?;
        return novelties(found, out);
    }
    if found.cases.is_empty() && found.unread_paths > 0 {
        let paths = count(found.unread_paths, "path");
        writeln!(
            out,
            "No failure in {}; nothing could be read of {paths}.",
            logs(found.streams)
        )?;
        return novelties(found, out);
    }
    if found.cases.is_empty() && found.open_ends > 0 {
        let states = if found.open_ends == 1 { "log does" } else { "logs do" };
        writeln!(
            out,
            "No failure in {}, but {} {states} not state how the run ended.",
            logs(found.streams),
            found.open_ends
        )?;
        return novelties(found, out);
    }
    if found.cases.is_empty() {
        writeln!(out, "No failure in {}.", logs(found.streams))?;
        return novelties(found, out);
    }
    writeln!(out, "{} in {}.", cases(found.cases.len()), logs(found.streams))?;
    for (index, case) in found.cases.iter().enumerate() {
        writeln!(out)?;
        note(index + 1, case, out)?;
    }
    novelties(found, out)
}

/// Prints lines that healthy runs do not contain, strongest first.
fn novelties(found: &Diagnoses, out: &mut dyn Write) -> io::Result<()> {
    let novelties = match &found.novelties {
        HealthyComparison::NotRequested => return Ok(()),
        HealthyComparison::NothingRead => {
            return writeln!(out, "\nNothing was compared: no line of a healthy run could be read.");
        }
        HealthyComparison::Novelties(novelties) => novelties,
    };
    writeln!(out)?;
    if novelties.is_empty() {
        return writeln!(out, "No line differs from the healthy runs.");
    }
    writeln!(out, "Lines that the healthy runs do not contain")?;
    for novelty in novelties {
        writeln!(
            out,
            "  {} {:.2} {}",
            novelty.id,
            novelty.score,
            printable(&novelty.sentence)
        )?;
        let example: String = novelty.example.chars().take(WIDTH).collect();
        writeln!(
            out,
            "     {}:{}: {}",
            printable(&novelty.stream),
            novelty.line,
            printable(&example)
        )?;
    }
    Ok(())
}

fn note(number: usize, case: &OfflineCase, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{number}. {} ({}), confidence {:.2}",
        case.class, case.layer, case.confidence
    )?;
    writeln!(out, "   in          {}", printable(&case.id))?;
    if !case.is_failure() {
        return Ok(());
    }
    if let Some(at) = &case.first_at {
        let note = case.first_at_note.as_ref().map(|note| format!(" ({note})"));
        writeln!(out, "   first       {at}{}", note.unwrap_or_default())?;
    }
    writeln!(out, "   blamed      {}", printable(&case.blamed))?;
    if let Some(rank) = case.root_rank {
        writeln!(out, "   root rank   {rank}")?;
    }
    let is_named = |node: &&NodeId| case.blamed.split([' ', ',']).any(|word| word == node.as_str());
    if let Some(node) = case.root_node.as_ref().filter(|node| !is_named(node)) {
        writeln!(out, "   root node   {}", printable(node.as_str()))?;
    }
    for (taxonomy, places) in case.taxonomies.iter() {
        writeln!(out, "   {taxonomy:<22} {}", places.join(", "))?;
    }
    let by = if case.recommended_by.is_empty() {
        "inferred by Rankguard".to_owned()
    } else {
        case.recommended_by.join(", ")
    };
    writeln!(out, "   action      {}: {} ({by})", case.action, case.advice)?;
    writeln!(out, "   lines")?;
    for line in &case.key_lines {
        let text: String = line
            .text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(WIDTH)
            .collect();
        let number = match line.line {
            0 => String::new(),
            number => format!(":{number}"),
        };
        writeln!(out, "     {}{number}: {}", printable(&line.file), printable(&text))?;
    }
    writeln!(out, "   reasoning")?;
    for sentence in &case.reasoning {
        writeln!(out, "     {}", printable(sentence))?;
    }
    if !case.alternatives.is_empty() {
        let others: Vec<_> = case
            .alternatives
            .iter()
            .map(|other| format!("{} {:.2}", other.class, other.confidence))
            .collect();
        writeln!(out, "   otherwise   {}", others.join(", "))?;
    }
    writeln!(out, "   cleared by  {}", case.clears)
}

/// Prints the answers of the second reader.
pub(super) fn readings(readings: &[ShownReading], out: &mut dyn Write) -> io::Result<()> {
    for reading in readings {
        writeln!(out)?;
        for line in reading.page() {
            writeln!(out, "{}", printable(&line))?;
        }
    }
    Ok(())
}

fn logs(count: usize) -> String {
    if count == 1 {
        "1 log".to_owned()
    } else {
        format!("{count} logs")
    }
}

fn cases(count: usize) -> String {
    if count == 1 {
        "1 case".to_owned()
    } else {
        format!("{count} cases")
    }
}
