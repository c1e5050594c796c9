//! ORNL's Alpine file system: one row a failed disk, with rack, enclosure and slot.

use crate::csv::DelimitedFile;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "alpine",
    title: "ORNL Alpine (Summit's file system) disk failures 2019-2023: 3,766 disks with rack and slot",
    citation: "A. George, J. Hanley, C. Zimmer, doi 10.13139/OLCF/2441482, 2024",
    home: "github.com/Ann-Geo/Disk-failures-in-HPC-2024",
    clock: "instants: -0400 and -0500 are mixed, here Unix seconds",
    traps: &[
        "36 times are equal: what a zero gap is taken for decides the fitted shape",
        "no inventory of disks: the population is not known",
    ],
    role: |head| {
        head.has_columns(",", &["Timestamp", "SSC", "SSU", "Unique enclosure", "Rack id"])
            .then_some("failed disks")
    },
    read: |_, _, input, load| {
        let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
            return;
        };
        while csv.next(load) {
            let text = csv.get("Timestamp").to_owned();
            let Some((when, offset)) = time::iso(&text) else {
                load.lose("bad-value", "Timestamp", || {
                    format!("{:?} is no time; passed over", crate::load::cut(&text))
                });
                continue;
            };
            if offset.is_none() {
                load.report_kept_row("mixed-offsets", "Timestamp", || "no offset, counted as UTC".to_owned());
            }
            load.in_order(TableKind::Failures, Some(when));
            load.row(TableKind::Failures)
                .num("time", when)
                .text("node", csv.get("Unique enclosure"))
                .text(
                    "device",
                    &format!("{}/{}", csv.get("Unique enclosure"), csv.get("Slot")),
                )
                .text("system", "Alpine")
                .text("class", "disk")
                .text("x_rack", csv.get("Rack id"))
                .text("x_ssc", csv.get("SSC"))
                .text("x_ssu", csv.get("SSU"))
                .text("x_slot", csv.get("Slot"));
        }
    },
    ..SourceFormat::PLAIN
};
