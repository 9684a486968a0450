//! What the benches share: comparisons that hold on a noisy machine.
//!
//! Criterion measures one thing after the other, so on shared processors a quotient of two of its figures is partly
//! a quotient of two loads. [`compare`] takes turns instead, and [`percentiles`] looks at single calls.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Whether this process was started to measure (`cargo bench`), not to list or smoke-test the benches.
#[must_use]
pub fn measuring() -> bool {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    has("--bench") && !has("--test") && !has("--list")
}

/// Times `one` and `other` in turn, `rounds` times, and prints the medians and their ratio. Does nothing unless
/// [`measuring`].
pub fn compare(
    rounds: usize,
    (one_name, mut one): (&str, impl FnMut() -> Duration),
    (other_name, mut other): (&str, impl FnMut() -> Duration),
) {
    if !measuring() {
        return;
    }
    let (mut ones, mut others) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for _ in 0..rounds {
        ones.push(one());
        others.push(other());
    }
    let (one, other) = (at(&mut ones, 50), at(&mut others, 50));
    let ratio = one.as_secs_f64() / other.as_secs_f64();
    println!(
        "{one_name} : {other_name} = {ratio:.2} (medians {one:?} and {other:?} of {rounds} rounds in turn)"
    );
}

/// Times `rounds` single calls and prints the median and the 99th percentile. Does nothing unless [`measuring`].
pub fn percentiles(name: &str, rounds: usize, mut call: impl FnMut() -> Duration) {
    if !measuring() {
        return;
    }
    let mut times: Vec<Duration> = (0..rounds).map(|_| call()).collect();
    let (p50, p99) = (at(&mut times, 50), at(&mut times, 99));
    println!("{name}: p50 {p50:?}, p99 {p99:?} of {rounds} calls");
}

/// Times one call.
pub fn time<T>(call: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let result = std::hint::black_box(call());
    let took = start.elapsed();
    drop(result);
    took
}

/// The `percent`-th percentile; zero of nothing.
fn at(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// An answer to `GET /cluster/resources` with so many guests, a third of them containers, 16 nodes and 64 storages,
/// fields as PVE 9 has them.
#[must_use]
pub fn large_cluster(guests: u32) -> String {
    let mut text = String::from("{\"data\":[");
    for n in 0..guests {
        // A JSON number has no leading zero.
        let (kind, node, n) = (if n % 3 == 0 { "lxc" } else { "qemu" }, n % 16 + 1, n + 1);
        let _ = write!(
            text,
            r#"{{"cpu":0.0{:03},"disk":0,"diskread":{n}0240,"diskwrite":{n}7712,"id":"{kind}/{vmid}","maxcpu":4,"maxdisk":34359738368,"maxmem":4294967296,"mem":{n}31072,"memhost":{n}41072,"name":"guest-{n}.example","netin":{n}881,"netout":{n}129,"node":"pve{node}","pool":"dev","status":"running","tags":"linux;team-{node};web","template":0,"type":"{kind}","uptime":{n}3,"vmid":{vmid}}},"#,
            n % 1000,
            vmid = 99 + n,
        );
    }
    for n in 1..=16 {
        let _ = write!(
            text,
            r#"{{"cpu":0.11,"disk":{n}1,"id":"node/pve{n}","level":"","maxcpu":64,"maxdisk":98765432100,"maxmem":549755813888,"mem":{n}2,"node":"pve{n}","status":"online","type":"node","uptime":86400}},"#
        );
    }
    for n in 1..=64 {
        let comma = if n == 64 { "" } else { "," };
        let _ = write!(
            text,
            r#"{{"content":"images,rootdir","disk":{n}1,"id":"storage/pve{0}/s{n}","maxdisk":98765432100,"node":"pve{0}","plugintype":"lvmthin","shared":0,"status":"available","storage":"s{n}","type":"storage"}}{comma}"#,
            n % 16 + 1
        );
    }
    text.push_str("]}");
    text
}
