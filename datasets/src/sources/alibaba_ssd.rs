//! Alibaba's failed SSDs of 2018 and 2019: one row a failed drive, with its place.

use crate::csv::DelimitedFile;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "alibaba-ssd",
    title: "Alibaba SSD failures 2018-2019: 18,387 failed drives with node, rack and room",
    licence: "Apache-2.0",
    citation: "S. Han, P. Lee, F. Xu, Y. Liu, C. He, J. Liu, An In-Depth Study of Correlated Failures in Production SSD-Based Data Centers, FAST 2021",
    home: "github.com/alibaba-edu/dcbrain, ssd_open_data",
    clock: "wall clock without offset (the publication names none), counted as UTC; times are those of tickets",
    traps: &[
        "only drives that failed: no rates without the inventory, which is not in this file",
        "disk_id is a key only within a model: device is MODEL/DISK",
        "SMART columns are not taken over; most are empty for most models",
    ],
    role: |head| {
        head.has_columns(
            ",",
            &[
                "model",
                "failure_time",
                "disk_id",
                "node_id",
                "rack_id",
                "machine_room_id",
            ],
        )
        .then_some("failed drives")
    },
    read: |_, _, input, load| {
        let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
            return;
        };
        while csv.next(load) {
            let Some(when) = load.time("failure_time", csv.get("failure_time"), time::wall) else {
                load.lose("missing", "failure_time", || {
                    "a failure without its time; passed over".to_owned()
                });
                continue;
            };
            load.in_order(TableKind::Failures, Some(when));
            load.row(TableKind::Failures)
                .num("time", when)
                .text("node", csv.get("node_id"))
                .text("device", &format!("{}/{}", csv.get("model"), csv.get("disk_id")))
                .text("system", csv.get("machine_room_id"))
                .text("class", "SSD")
                .text("subclass", csv.get("model"))
                .text("x_rack", csv.get("rack_id"))
                .text("x_app", csv.get("app"));
        }
    },
    ..SourceFormat::PLAIN
};
