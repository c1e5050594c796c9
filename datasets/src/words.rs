//! One set of words for the end of a job, whatever a scheduler calls it.

/// The canonical state of a raw one: `completed`, `failed`, `cancelled`, `timeout`, `node_fail`, `out_of_memory`,
/// `preempted`, `running` (it has not ended and holds nodes), `pending`, or `other` for what means none of these.
pub(crate) fn state(raw: &str) -> &'static str {
    // `CANCELLED by 1000`, `CANCELLED+`.
    let word = raw.split([' ', '+']).next().unwrap_or("").to_ascii_uppercase();
    match word.as_str() {
        "COMPLETED" | "COMPLETE" | "PASS" | "PASSED" | "SUCCEEDED" | "TERMINATED" | "CD" => "completed",
        "FAILED" | "FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" | "SPECIAL_EXIT" | "F" | "BF" => "failed",
        "CANCELLED" | "CANCELED" | "KILLED" | "STOPPED" | "CA" => "cancelled",
        "TIMEOUT" | "DEADLINE" | "TO" | "DL" => "timeout",
        "NODE_FAIL" | "NF" => "node_fail",
        "OUT_OF_MEMORY" | "OUT_OF_ME" | "OOM" => "out_of_memory",
        "PREEMPTED" | "PR" => "preempted",
        "RUNNING" | "R" | "COMPLETING" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "SUSPENDED" => {
            "running"
        }
        "PENDING" | "WAITING" | "PD" => "pending",
        _ => "other",
    }
}
