//! Metrics in the text format of Prometheus (version 0.0.4).

use std::fmt::Write as _;

use super::numbers::{MetricFamily, MetricKind, families};
use crate::views::AgentView;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders all metrics of an agent.
pub(super) fn render(view: &AgentView) -> String {
    let mut text = String::new();
    for family in families(view) {
        write(&mut text, &family);
    }
    text
}

fn write(text: &mut String, family: &MetricFamily) {
    let name = format!("rankguard_agent_{}", family.name);
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
    };
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
    for sample in &family.samples {
        text.push_str(&name);
        for (at, (label, value)) in sample.labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(text, "{before}{label}=\"{}\"", escaped(value));
        }
        let end = if sample.labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{end} {}", sample.value);
    }
}

/// Escapes a label value: names of devices and jobs are foreign text.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
