//! WebAssembly components for tests, built in memory from a few lines of text each, without any foreign toolchain.
//!
//! Every function here returns the bytes of a component (or of something else, where the name says so). The
//! core modules are hand-written for the canonical ABI; the private module `assembly` holds their shared parts.

mod assembly;

use assembly::{Module, encode};

/// The default patch version of WASI of the components.
pub const WASI_VERSION: &str = "0.2.3";

fn handler(handle: &str, text: &[u8]) -> Vec<u8> {
    Module {
        handle,
        text,
        ..Module::default()
    }
    .build()
}

/// Answers 200 with this text. Different texts result in different digests.
#[must_use]
pub fn hello(text: &str) -> Vec<u8> {
    hello_for(text, WASI_VERSION)
}

/// Like [`hello`], for another patch version of WASI, such as `0.2.0`.
#[must_use]
pub fn hello_for(text: &str, version: &str) -> Vec<u8> {
    let pages = u32::try_from(text.len() / 65536).expect("a text of less than 4 GiB") + 1;
    Module {
        version,
        handle: &format!(
            "(call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const {}))",
            text.len()
        ),
        text: text.as_bytes(),
        pages: pages + 1,
        ..Module::default()
    }
    .build()
}

/// Answers 200 with this text, and contains the same functions whatever the text, like components that contain a language runtime.
#[must_use]
pub fn with_engine(functions: u32, text: &str) -> Vec<u8> {
    let body = |i: u32| {
        let step = format!("(i32.add (i32.mul (local.get 0) (i32.const 3)) (i32.const {i}))");
        let steps = format!("(local.set 0 {step})").repeat(24);
        format!("(func $engine-{i} (param i32) (result i32) {steps} (local.get 0))\n")
    };
    let names: String = (0..functions).map(|i| format!(" $engine-{i}")).collect();
    let bodies: String = (0..functions).map(body).collect();
    Module {
        handle: &format!(
            "(call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const {}))",
            text.len()
        ),
        text: text.as_bytes(),
        more: &format!("(table funcref (elem{names}))\n{bodies}"),
        ..Module::default()
    }
    .build()
}

/// Answers this status with the body `status`.
#[must_use]
pub fn status(code: u16) -> Vec<u8> {
    handler(
        &format!(
            "(call $answer (local.get $out) (i32.const {code}) (i32.const 1024) (i32.const 6))"
        ),
        b"status",
    )
}

/// Answers 200 with the request's body, streaming.
#[must_use]
pub fn echo() -> Vec<u8> {
    handler(
        "(call $request-consume (local.get $request) (i32.const 64))
        (local.set $a (i32.load (i32.const 68)))
        (call $open (local.get $out) (i32.const 200))
        (drop (call $pump (local.get $a)))
        (call $close)
        (call $drop-request (local.get $request))",
        b"",
    )
}

/// Reads the request's body completely, then answers with the number of its bytes.
#[must_use]
pub fn measuring() -> Vec<u8> {
    handler(
        "(call $request-consume (local.get $request) (i32.const 64))
        (local.set $a (i32.load (i32.const 68)))
        (call $incoming-stream (local.get $a) (i32.const 64))
        (local.set $b (i32.load (i32.const 68)))
        (block $end
            (loop $more
                (global.set $heap (i32.const 8192))
                (call $read (local.get $b) (i64.const 16384) (i32.const 64))
                (br_if $end (i32.load8_u (i32.const 64)))
                (local.set $c (i32.add (local.get $c) (i32.load (i32.const 72))))
                (br $more)))
        (call $drop-input (local.get $b))
        (call $drop-incoming-body (local.get $a))
        (local.set $a (call $digits (local.get $c)))
        (call $answer (local.get $out) (i32.const 200) (local.get $a) (i32.sub (i32.const 272) (local.get $a)))
        (call $drop-request (local.get $request))",
        b"",
    )
}

/// Answers 200 with the request's path and query.
#[must_use]
pub fn path() -> Vec<u8> {
    handler(
        "(call $request-path (local.get $request) (i32.const 64))
        (call $answer (local.get $out) (i32.const 200) (i32.load (i32.const 68)) (i32.load (i32.const 72)))",
        b"",
    )
}

/// Answers with the number of calls that its instance has served, including this one.
#[must_use]
pub fn counter() -> Vec<u8> {
    handler(
        "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (local.set $a (call $digits (global.get $count)))
        (call $answer (local.get $out) (i32.const 200) (local.get $a) (i32.sub (i32.const 272) (local.get $a)))
        (call $drop-request (local.get $request))",
        b"",
    )
}

/// Traps immediately.
#[must_use]
pub fn trapping() -> Vec<u8> {
    handler("(unreachable)", b"")
}

/// Traps as a panic in Rust does: many functions lie between its place and the trap. Their names are a compiler's.
#[must_use]
pub fn panicking() -> Vec<u8> {
    // The outermost first.
    const STACK: [&str; 14] = [
        "_ZN8function6answer17h298c66fcaa0d3064E",
        "_RNvNtCs9pv848UzQwQ_4core6option13unwrap_failed",
        "_RNvNtCs9pv848UzQwQ_4core9panicking5panic",
        "_RNvNtCs9pv848UzQwQ_4core9panicking9panic_fmt",
        "_RNvCsfLfy6EI15iL_7___rustc17rust_begin_unwind",
        "_RINvNtNtCshXfaRvt2tfW_3std3sys9backtrace26___rust_end_short_backtraceNCNvNtB6_9panicking13panic_handler0zEB6_",
        "_RNCNvNtCshXfaRvt2tfW_3std9panicking13panic_handler0B5_",
        "_RNvNtCshXfaRvt2tfW_3std9panicking15panic_with_hook",
        "_RNvCsfLfy6EI15iL_7___rustc10rust_panic",
        "_RNvCsfLfy6EI15iL_7___rustc18___rust_start_panic",
        "_RNvCsfLfy6EI15iL_7___rustc12___rust_abort",
        "_RNvNtCshXfaRvt2tfW_3std7process5abort",
        "_RNvNtNtNtNtCshXfaRvt2tfW_3std3sys3pal4wasi7helpers14abort_internal",
        "abort",
    ];
    let (place, trap) = (STACK[0], STACK[STACK.len() - 1]);
    let calls: String = STACK
        .windows(2)
        .map(|pair| format!("(func ${} (call ${}))\n", pair[0], pair[1]))
        .collect();
    Module {
        handle: &format!("(call ${place})"),
        more: &format!("{calls}(func ${trap} (unreachable))"),
        ..Module::default()
    }
    .build()
}

/// Sends the head and a piece of the body, then traps.
#[must_use]
pub fn trapping_midway() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (drop (call $put (i32.const 1024) (i32.const 7)))
        (unreachable)",
        b"partial",
    )
}

/// Exits with a failure status, without an answer.
#[must_use]
pub fn exiting() -> Vec<u8> {
    handler("(call $exit (i32.const 1))", b"")
}

/// Loops forever.
#[must_use]
pub fn looping() -> Vec<u8> {
    handler("(loop $for-ever (br $for-ever))", b"")
}

/// Sends the head, then loops forever.
#[must_use]
pub fn looping_midway() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (drop (call $put (i32.const 1024) (i32.const 7)))
        (loop $for-ever (br $for-ever))",
        b"partial",
    )
}

/// Counts to `millions` million, then answers `done`: a finite amount of CPU time.
#[must_use]
pub fn cpu_bound(millions: u32) -> Vec<u8> {
    let count = millions.checked_mul(1_000_000).expect("fewer than 4,294");
    handler(
        &format!(
            "(loop $more
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $a) (i32.const {count}))))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 4))"
        ),
        b"done",
    )
}

/// Allocates memory until that fails, then traps.
#[must_use]
pub fn hog() -> Vec<u8> {
    handler(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        (unreachable)",
        b"",
    )
}

/// Prepares this many answers with bodies, sends none of them, and loops forever.
#[must_use]
pub fn hoarding_answers(count: u32) -> Vec<u8> {
    hoarding(
        "(call $response-body (call $response-new (call $fields-new)) (i32.const 0))",
        count,
        b"",
    )
}

/// Prepares this many requests to an authority of 256 KiB, sends none of them, and loops forever.
#[must_use]
pub fn hoarding_requests(count: u32) -> Vec<u8> {
    hoarding(
        "(local.set $a (call $out-new (call $fields-new)))
        (drop (call $out-authority (local.get $a) (i32.const 1) (i32.const 1024) (i32.const 262144)))",
        count,
        "a".repeat(262_144).as_bytes(),
    )
}

/// Makes this many header maps, gives each of them 3000 values and takes those away again, and loops forever.
#[must_use]
pub fn hoarding_headers(count: u32) -> Vec<u8> {
    // The memory from 16384 on is zero: the values are empty.
    hoarding(
        "(local.set $a (call $fields-new))
        (call $fields-set (local.get $a) (i32.const 1024) (i32.const 1) (i32.const 16384) (i32.const 3000) (i32.const 0))
        (call $fields-delete (local.get $a) (i32.const 1024) (i32.const 1) (i32.const 0))",
        count,
        b"n",
    )
}

fn hoarding(step: &str, count: u32, text: &[u8]) -> Vec<u8> {
    let handle = format!(
        "(loop $more
            {step}
            (local.set $c (i32.add (local.get $c) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $c) (i32.const {count}))))
        (loop $for-ever (br $for-ever))"
    );
    Module {
        handle: &handle,
        text,
        pages: 5,
        ..Module::default()
    }
    .build()
}

/// Allocates memory until that fails, then answers `full`: a failed allocation need not end the call.
#[must_use]
pub fn frugal() -> Vec<u8> {
    handler(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 4))",
        b"full",
    )
}

/// Answers with an endless body, as long as it is read.
#[must_use]
pub fn endless_body() -> Vec<u8> {
    handler(
        "(call $open (local.get $out) (i32.const 200))
        (loop $more (br_if $more (i32.eqz (call $put (i32.const 1024) (i32.const 4096)))))",
        &[b'x'; 4096],
    )
}

/// Answers `ok` to `/` (so that the probe of an upload succeeds) and misbehaves otherwise, depending on the path: `/loop`
/// loops forever, `/trap` traps, `/memory` allocates memory until that fails and then traps, `/body` sends an endless body,
/// and anything else answers `ok`.
#[must_use]
pub fn faulty() -> Vec<u8> {
    handler(
        "(call $request-path (local.get $request) (i32.const 64))
        (if (i32.gt_u (i32.load (i32.const 72)) (i32.const 1)) (then
            (local.set $a (i32.load8_u (i32.add (i32.load (i32.const 68)) (i32.const 1))))
            (if (i32.eq (local.get $a) (i32.const 108)) (then (loop $for-ever (br $for-ever))))
            (if (i32.eq (local.get $a) (i32.const 116)) (then (unreachable)))
            (if (i32.eq (local.get $a) (i32.const 109)) (then
                (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
                (unreachable)))
            (if (i32.eq (local.get $a) (i32.const 98)) (then
                (call $open (local.get $out) (i32.const 200))
                (loop $more (br_if $more (i32.eqz (call $put (i32.const 1024) (i32.const 4096)))))
                (return)))))
        (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 2))",
        b"ok",
    )
}

/// Returns without an answer.
#[must_use]
pub fn no_response() -> Vec<u8> {
    handler("", b"")
}

/// Sets an error (`internal-error`) instead of a response.
#[must_use]
pub fn answers_error() -> Vec<u8> {
    handler(
        "(call $respond (local.get $out) (i32.const 1) (i32.const 38)
            (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
        b"",
    )
}

/// Sleeps for this time, then answers `awake`.
#[must_use]
pub fn sleeping(milliseconds: u32) -> Vec<u8> {
    handler(
        &format!(
            "(call $sleep (i64.const {}))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 5))",
            u64::from(milliseconds) * 1_000_000
        ),
        b"awake",
    )
}

/// Sleeps for the number of milliseconds in the request's path, such as `/250`, then answers `awake`.
#[must_use]
pub fn waiting() -> Vec<u8> {
    handler(
        "(call $request-path (local.get $request) (i32.const 64))
        (local.set $a (i32.load (i32.const 68)))
        (local.set $b (i32.add (local.get $a) (i32.load (i32.const 72))))
        (block $end
            (loop $more
                (br_if $end (i32.ge_u (local.get $a) (local.get $b)))
                (if (i32.lt_u (i32.sub (i32.load8_u (local.get $a)) (i32.const 48)) (i32.const 10))
                    (then (local.set $c (i32.add (i32.mul (local.get $c) (i32.const 10))
                        (i32.sub (i32.load8_u (local.get $a)) (i32.const 48))))))
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br $more)))
        (call $sleep (i64.mul (i64.extend_i32_u (local.get $c)) (i64.const 1000000)))
        (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 5))",
        b"awake",
    )
}

/// Answers, then sleeps for this time, then prints `after` to its standard output.
#[must_use]
pub fn lingering(milliseconds: u32) -> Vec<u8> {
    handler(
        &format!(
            "(call $answer (local.get $out) (i32.const 200) (i32.const 1030) (i32.const 4))
            (call $sleep (i64.const {}))
            (call $write (call $stdout) (i32.const 1024) (i32.const 6) (i32.const 0))",
            u64::from(milliseconds) * 1_000_000
        ),
        b"after\nsent",
    )
}

/// Prints to standard output and standard error, then answers `logged`.
#[must_use]
pub fn logging(stdout: &str, stderr: &str) -> Vec<u8> {
    let text = format!("logged{stdout}{stderr}");
    handler(
        &format!(
            "(call $write (call $stdout) (i32.const 1030) (i32.const {0}) (i32.const 0))
            (call $write (call $stderr) (i32.const {1}) (i32.const {2}) (i32.const 0))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 6))",
            stdout.len(),
            1030 + stdout.len(),
            stderr.len()
        ),
        text.as_bytes(),
    )
}

/// Prints this many lines of eight bytes to its standard output, then answers `logged`.
#[must_use]
pub fn chatty(lines: u32) -> Vec<u8> {
    handler(
        &format!(
            "(local.set $b (call $stdout))
            (loop $more
                (call $write (local.get $b) (i32.const 1030) (i32.const 8) (i32.const 0))
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $a) (i32.const {lines}))))
            (call $answer (local.get $out) (i32.const 200) (i32.const 1024) (i32.const 6))"
        ),
        b"logged1234567\n",
    )
}

/// Answers with the value of this environment variable, or 404 if it is not set.
#[must_use]
pub fn env_dump(name: &str) -> Vec<u8> {
    handler(
        &format!(
            "(call $environment (i32.const 64))
            (local.set $a (i32.load (i32.const 64)))
            (local.set $b (i32.add (local.get $a) (i32.mul (i32.const 16) (i32.load (i32.const 68)))))
            (block $missing
                (loop $more
                    (br_if $missing (i32.ge_u (local.get $a) (local.get $b)))
                    (if (i32.eq (i32.load offset=4 (local.get $a)) (i32.const {len}))
                        (then
                            (local.set $c (i32.const 0))
                            (block $differs
                                (loop $compare
                                    (if (i32.eq (local.get $c) (i32.const {len}))
                                        (then
                                            (call $answer (local.get $out) (i32.const 200)
                                                (i32.load offset=8 (local.get $a)) (i32.load offset=12 (local.get $a)))
                                            (return)))
                                    (br_if $differs (i32.ne
                                        (i32.load8_u (i32.add (i32.load (local.get $a)) (local.get $c)))
                                        (i32.load8_u (i32.add (i32.const 1024) (local.get $c)))))
                                    (local.set $c (i32.add (local.get $c) (i32.const 1)))
                                    (br $compare)))))
                    (local.set $a (i32.add (local.get $a) (i32.const 16)))
                    (br $more)))
            (call $answer (local.get $out) (i32.const 404) (i32.const 1024) (i32.const 0))",
            len = name.len()
        ),
        name.as_bytes(),
    )
}

/// Sends `GET /` over plain HTTP to this authority (`host:port`) and answers 200 with the body of the response, or 502 with
/// the number of the wasi:http error-code (`15` is a denied request, `4` a prohibited address).
#[must_use]
pub fn outbound(authority: &str) -> Vec<u8> {
    handler(
        &format!(
            "(local.set $a (call $out-new (call $fields-new)))
            (drop (call $out-scheme (local.get $a) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
            (drop (call $out-authority (local.get $a) (i32.const 1) (i32.const 1024) (i32.const {len})))
            (drop (call $out-path (local.get $a) (i32.const 1) (i32.const {slash}) (i32.const 1)))
            (call $send (local.get $a) (i32.const 0) (i32.const 0) (i32.const 64))
            (block $failed
                (if (i32.load8_u (i32.const 64))
                    (then (local.set $c (i32.load8_u (i32.const 72))) (br $failed)))
                (local.set $a (i32.load (i32.const 72)))
                (local.set $b (call $future-subscribe (local.get $a)))
                (call $block (local.get $b))
                (call $drop-pollable (local.get $b))
                (call $future-get (local.get $a) (i32.const 64))
                (if (i32.load8_u (i32.const 80))
                    (then (local.set $c (i32.load8_u (i32.const 88))) (br $failed)))
                (call $in-consume (i32.load (i32.const 88)) (i32.const 64))
                (local.set $b (i32.load (i32.const 68)))
                (call $open (local.get $out) (i32.const 200))
                (drop (call $pump (local.get $b)))
                (call $close)
                (return))
            (local.set $a (call $digits (local.get $c)))
            (call $answer (local.get $out) (i32.const 502) (local.get $a) (i32.sub (i32.const 272) (local.get $a)))",
            len = authority.len(),
            slash = 1024 + authority.len(),
        ),
        format!("{authority}/").as_bytes(),
    )
}

/// Imports two interfaces that no network provides: `fdn:foreign/things@1.0.0` and `acme:store/kv@0.2.0`.
#[must_use]
pub fn foreign_import() -> Vec<u8> {
    handler("(call $touch) (call $poke)", b"")
}

/// A component that exports something other than a handler: `fdn:fixtures/shape`.
#[must_use]
pub fn no_handler() -> Vec<u8> {
    encode(
        r#"(module (func (export "fdn:fixtures/shape#area") (param i32) (result i32)
            (i32.mul (local.get 0) (local.get 0))))"#,
        WASI_VERSION,
        "library",
    )
}

/// A core module, which is not a component.
#[must_use]
pub fn core_module() -> Vec<u8> {
    wat::parse_str("(module (func (export \"run\")))").expect("the fixture's text is well-formed")
}

/// An incomplete component: the first half of [`echo`].
#[must_use]
pub fn truncated() -> Vec<u8> {
    let mut bytes = echo();
    bytes.truncate(bytes.len() / 2);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixture_is_well_formed() {
        for component in [
            hello("hi"),
            hello_for("hi", "0.2.0"),
            status(404),
            echo(),
            measuring(),
            path(),
            counter(),
            trapping(),
            trapping_midway(),
            exiting(),
            looping(),
            looping_midway(),
            cpu_bound(1),
            hog(),
            hoarding_answers(1),
            hoarding_requests(1),
            hoarding_headers(1),
            frugal(),
            endless_body(),
            no_response(),
            answers_error(),
            sleeping(1),
            waiting(),
            lingering(1),
            logging("a", "b"),
            chatty(2),
            env_dump("NAME"),
            outbound("127.0.0.1:1"),
            foreign_import(),
            no_handler(),
        ] {
            assert_eq!(component[..8], *b"\0asm\x0d\0\x01\0");
        }
        assert_eq!(core_module()[..8], *b"\0asm\x01\0\0\0");
        assert!(truncated().len() < echo().len());
        assert_ne!(hello("a"), hello("b"));
    }
}
