//! Hosts in the line formats of communication libraries. They remain in the message, because signatures match the text around
//! them.

use super::cursor::LineCursor;

/// Returns the host of the process that wrote a message of NCCL or RCCL, of UCX, or of Open MPI's signal handler.
pub(super) fn host(text: &str) -> Option<&str> {
    let of_bracket = || ucx(text).or_else(|| open_mpi(text));
    nccl(text).or_else(of_bracket).filter(|host| is_host(host))
}

/// Parses `node23:12098:12141 [2] transport/nvls.cc:244 NCCL WARN ...`: host, process, thread, device (`ncclDebugLog` in
/// `src/debug.cc`).
fn nccl(text: &str) -> Option<&str> {
    let mut c = LineCursor::new(text);
    let host = c.run(is_host_byte)?;
    ids(&mut c)?;
    c.eat(" [").then_some(())?;
    c.digits(3)?;
    c.eat("] ").then_some(())?;
    let head = &c.rest[..c.rest.floor_char_boundary(PLACE)];
    ["NCCL ", "RCCL "]
        .iter()
        .any(|name| head.contains(name))
        .then_some(host)
}

/// Maximum length of the place in the code before the name of the library, bytes.
const PLACE: usize = 120;

/// Parses `[node23:19546:0:19546] ib_mlx5_log.c:139  ...` and `[1618317353.43] [node23:19546:0]   ib_mlx5_log.c:139 UCX
/// ERROR`: host, process, one or two numbers of the thread (`ucs_log_print` in `src/ucs/debug/log.c`).
fn ucx(text: &str) -> Option<&str> {
    let mut c = LineCursor::new(text);
    let mut clocked = c;
    if clocked.eat("[") && clocked.digits(10).is_some() && clocked.eat(".") && clocked.digits(6).is_some() {
        clocked.eat("] ").then_some(())?;
        c = clocked;
    }
    c.eat("[").then_some(())?;
    let host = c.run(is_host_byte)?;
    ids(&mut c)?;
    if c.eat(":") {
        c.digits(10)?;
    }
    c.eat("]").then_some(())?;
    c.spaces().then_some(())?;
    let place = c.run(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))?;
    (place.ends_with(".c") || place.ends_with(".cc") || place.ends_with(".h")).then_some(())?;
    c.rest.starts_with(':').then_some(host)
}

/// Parses `[node23:02773] *** Process received signal ***` and the lines below it: host and process, which has at least five
/// digits (`show_stackframe` in `opal/util/stacktrace.c`).
fn open_mpi(text: &str) -> Option<&str> {
    let mut c = LineCursor::new(text);
    c.eat("[").then_some(())?;
    let host = c.run(is_host_byte)?;
    c.eat(":").then_some(())?;
    c.digits(10).filter(|process| process.len() >= 5)?;
    c.eat("] ").then_some(())?;
    let starts = ["*** ", "Signal: ", "Signal code: ", "Failing at address: ", "[ "];
    starts.iter().any(|start| c.rest.starts_with(start)).then_some(host)
}

/// Parses `:12098:12141`: process and thread.
fn ids(c: &mut LineCursor<'_>) -> Option<()> {
    for _ in 0..2 {
        c.eat(":").then_some(())?;
        c.digits(10)?;
    }
    Some(())
}

fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._".contains(&b)
}

/// Returns true for a name with a letter.
fn is_host(name: &str) -> bool {
    name.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_write_their_host_before_the_process() {
        for (text, expect) in [
            (
                "node23:12098:12141 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
                Some("node23"),
            ),
            (
                "H100-2:19989:20082 [1] NCCL INFO transport/net.cc:1008 -> 6",
                Some("H100-2"),
            ),
            (
                "[head:19546:0:19546] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB",
                Some("head"),
            ),
            (
                "[1618317353.437183] [head:19546:0]   ib_mlx5_log.c:139  UCX  ERROR Transport retry count exceeded",
                Some("head"),
            ),
            ("[good:02773] *** Process received signal ***", Some("good")),
            ("[good:02773] [ 0] /lib64/libpthread.so.0(+0xf630)[0x2b6]", Some("good")),
        ] {
            assert_eq!(host(text), expect, "{text}");
        }
    }

    #[test]
    fn other_brackets_and_numbers_are_no_hosts() {
        for text in [
            "[step:10000] loss 2.3",
            "[ERROR:0@0.017] global loadsave.cpp:248 findDecoder imread_",
            "[gpu:12345] Signal strength 3",
            "10:22:33 [2] NCCL INFO Init COMPLETE",
            "12:12098:12141 [2] NCCL INFO Init COMPLETE",
            "train:1:2 [3] loss 0.2",
            "[proxy:0:0@n2] HYD_pmcd_pmip_control_cmd_cb",
            "[rank3]: RuntimeError: it broke",
            "[a:1:2:3] it broke",
        ] {
            assert_eq!(host(text), None, "{text}");
        }
    }
}
