//! Gantt panel of a job's figure: the states of each node over time and, below them, its ranks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rankguard_model::{JobView, NodeId, StateSpan};

use super::canvas::{FigurePanel, LEFT, TimeAxis};
use super::text::{escape, offset};

/// Height of the panel's title; lengths are in user units of the SVG.
const HEAD: f64 = 22.0;
/// Height of the bar with a node's states.
const BAND: f64 = 7.0;
/// Distance between two lanes of ranks.
const LANE: f64 = 17.0;
/// Height of a rank's bar in its lane.
const BAR: f64 = 14.0;
/// Gap below the last lane of a node.
const GAP: f64 = 9.0;

/// Spans of one node.
#[derive(Default)]
struct NodeSpans<'a> {
    /// States of the node.
    life: Vec<&'a StateSpan>,
    /// States of its ranks; the spans of one lane do not overlap.
    lanes: Vec<Vec<&'a StateSpan>>,
}

/// Renders the panel from the coordinate `top` downwards. `nodes` are the spans of the nodes; those of ranks are in
/// `job`.
pub(super) fn panel(job: &JobView, nodes: &[StateSpan], clock: &TimeAxis, top: f64) -> FigurePanel {
    let mut rows: BTreeMap<&NodeId, NodeSpans<'_>> = BTreeMap::new();
    for span in nodes {
        rows.entry(&span.node).or_default().life.push(span);
    }
    let mut ranks: Vec<&StateSpan> = job.spans.iter().filter(|span| span.rank.is_some()).collect();
    ranks.sort_by_key(|span| (span.from, span.rank));
    for span in ranks {
        place(&mut rows.entry(&span.node).or_default().lanes, span);
    }
    let mut svg = format!(
        "<text class=\"panel-name\" x=\"{LEFT}\" y=\"{:.1}\">nodes and ranks</text>",
        top + HEAD - 7.0
    );
    let mut y = top + HEAD + 2.0;
    for (node, row) in &rows {
        let _ = write!(
            svg,
            "<text class=\"node-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 10.0,
            escape(shortened(node.as_str()))
        );
        for span in &row.life {
            bar(&mut svg, span, clock, y, BAND, None);
        }
        y += BAND + 3.0;
        for lane in &row.lanes {
            for span in lane {
                bar(&mut svg, span, clock, y, BAR, span.rank.map(|rank| format!("r{rank}")));
            }
            y += LANE;
        }
        // The node name needs height even without ranks.
        y += if row.lanes.is_empty() { GAP + 5.0 } else { GAP };
    }
    FigurePanel { height: y - top, svg }
}

/// Adds a span to a lane that is free at its start, or to a new lane. The lane in which the same rank was last is
/// preferred, so that a restarted rank remains in its lane.
fn place<'a>(lanes: &mut Vec<Vec<&'a StateSpan>>, span: &'a StateSpan) {
    let is_free = |lane: &Vec<&StateSpan>| lane.iter().all(|other| other.to.is_some_and(|to| to <= span.from));
    let same = lanes
        .iter()
        .position(|lane| is_free(lane) && lane.last().is_some_and(|last| last.rank == span.rank));
    match same.or_else(|| lanes.iter().position(is_free)) {
        Some(at) => lanes[at].push(span),
        None => lanes.push(vec![span]),
    }
}

/// Draws a span with a tooltip; `label` is left out if the bar is too narrow for it. An open span ends at the end of
/// the axis.
fn bar(svg: &mut String, span: &StateSpan, clock: &TimeAxis, y: f64, height: f64, label: Option<String>) {
    let from = clock.at(span.from);
    let to = clock.at(span.to.unwrap_or(clock.end));
    let width = (to - from).max(1.0);
    let who = match (span.rank, span.generation) {
        (Some(rank), Some(generation)) => format!("rank {rank}, generation {generation}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, _) => "node".to_owned(),
    };
    let until = span.to.map_or_else(|| "now".to_owned(), |to| offset(to, clock.start));
    let _ = write!(
        svg,
        "<g><title>{}: {who} {}, {} to {until}</title>\
         <rect class=\"{}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2.5\"/>",
        escape(span.node.as_str()),
        escape(&span.state),
        offset(span.from, clock.start),
        class(&span.state)
    );
    if let Some(label) = label.filter(|_| width > 26.0) {
        let _ = write!(
            svg,
            "<text class=\"bar-name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            from + 5.0,
            y + 10.6,
            escape(label)
        );
    }
    svg.push_str("</g>");
}

/// Returns the CSS class of a state; `is-other` for an unknown one.
fn class(state: &str) -> &'static str {
    match state {
        "starting" => "is-starting",
        "running" => "is-running",
        "failed" => "is-failed",
        "ended" => "is-ended",
        "spare" => "is-spare",
        "healthy" => "is-healthy",
        "cordoned" => "is-cordoned",
        "lost" => "is-lost",
        _ => "is-other",
    }
}

/// Shortens names of more than 13 characters to their last 12, which usually distinguish nodes.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= 13 {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(count - 12)).collect()
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, Rank};

    use super::super::sample::at;
    use super::*;

    fn span(rank: u32, from: i64, to: i64) -> StateSpan {
        StateSpan {
            node: NodeId::from("n"),
            rank: Some(Rank(rank)),
            generation: Some(Generation(1)),
            state: "running".into(),
            from: at(from),
            to: Some(at(to)),
        }
    }

    #[test]
    fn ranks_at_the_same_time_lie_in_different_lanes_and_a_restarted_one_stays_in_its_own() {
        let spans = [span(0, 0, 10), span(1, 0, 12), span(1, 12, 20), span(0, 13, 20)];
        let mut lanes = Vec::new();
        spans.iter().for_each(|span| place(&mut lanes, span));
        let ranks: Vec<Vec<u32>> = lanes
            .iter()
            .map(|lane| lane.iter().filter_map(|span| Some(span.rank?.0)).collect())
            .collect();
        assert_eq!(ranks, [[0, 0], [1, 1]]);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(shortened("node-1"), "node-1");
        assert_eq!(shortened("gpu-cluster-eu-rack12-node07"), "…ack12-node07");
    }
}
