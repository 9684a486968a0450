use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const CHAIN: &str = "00112233445566778899aabbccddeeff";

fn start() -> Head {
    Head { chain: CHAIN.to_owned(), seq: 0, hash: NO_HASH }
}

fn seal(head: &Head, record: &Record, times: Times, out: &mut Vec<u8>) -> io::Result<Head> {
    super::seal(head, &Members::of(record)?, times, out)
}

fn times(second: i64) -> Times {
    let wall = Timestamp::from_second(1_800_000_000 + second).unwrap();
    Times { wall, monotonic: Duration::from_secs(second.unsigned_abs()) }
}

fn genesis() -> Record {
    Record::new(Event::Genesis).detail("chain", CHAIN)
}

/// A chain of `count` records after its genesis, as lines, and its head.
fn trail(count: usize) -> (Vec<u8>, Head) {
    let mut out = Vec::new();
    let mut head = seal(&start(), &genesis(), times(0), &mut out).unwrap();
    for index in 0..count {
        let record = Record::new(Event::ToolCall)
            .principal("reader")
            .tool("get_vms")
            .cluster("pve3")
            .vmid(100 + index as u32)
            .allowed();
        head = seal(&head, &record, times(index as i64), &mut out).unwrap();
    }
    (out, head)
}

fn check(bytes: &[u8], checkpoint: Option<&Head>) -> Result<Summary, String> {
    let mut scan = Scan::expecting(checkpoint);
    let path = Path::new("audit.jsonl");
    let torn = scan.file(path, bytes).map_err(|error| error.to_string())?;
    if !torn.is_empty() {
        return Err("torn".to_owned());
    }
    match scan.finish(path).map_err(|error| error.to_string())? {
        (_, Some(miss)) => Err(miss.to_string()),
        (summary, None) => Ok(summary),
    }
}

#[test]
fn a_sound_trail_verifies_and_its_head_reads_back() {
    let (bytes, head) = trail(20);
    let summary = check(&bytes, Some(&head)).unwrap();
    assert_eq!((summary.records, summary.first_seq, summary.from_genesis), (21, 1, true));
    assert_eq!(summary.head, head);
    assert_eq!(head.to_string().parse::<Head>().unwrap(), head);
    for wrong in ["", "pxw-audit:1:2:3", &format!("{head}:x"), &head.to_string().replace("pxw-audit", "pxw")]
    {
        wrong.parse::<Head>().unwrap_err();
    }
}

#[test]
fn a_line_is_what_the_format_says() {
    let mut out = Vec::new();
    seal(&start(), &genesis(), times(0), &mut out).unwrap();
    // The committed form: a verifier written elsewhere must come to the same bytes.
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!(
            "{{\"hash\":\"{}\",\"seq\":1,\"prev\":\"{}\",\"time\":\"2027-01-15T08:00:00.000000Z\",\"mono_us\":0,\
             \"event\":\"genesis\",\"details\":{{\"chain\":\"{CHAIN}\"}}}}\n",
            "d343e8c9aaf947b95e5672796a941c5f5bef6743953857c70a10049890a49fbf",
            "0".repeat(64)
        )
    );
}

/// xorshift: the edits must be the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// One edit of the kinds an intruder would make; `None` when it happened to change nothing.
fn edit(lines: &[Vec<u8>], random: &mut Random) -> Option<Vec<u8>> {
    let mut edited = lines.to_vec();
    let at = random.below(lines.len());
    match random.below(6) {
        0 => {
            let column = random.below(edited[at].len());
            edited[at][column] ^= 1 << random.below(8);
        }
        1 => {
            edited.remove(at);
        }
        2 => edited.insert(random.below(lines.len() + 1), lines[at].clone()),
        3 => edited.swap(at, random.below(lines.len())),
        4 => {
            let column = random.below(edited[at].len());
            edited[at].remove(column);
        }
        _ => {
            let column = random.below(edited[at].len());
            edited[at].insert(column, b' ' + random.below(95) as u8);
        }
    }
    (edited != lines).then(|| edited.concat())
}

#[test]
fn au_06_ten_thousand_single_edits_are_all_caught() {
    let (bytes, head) = trail(40);
    let lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut tried = 0;
    while tried < 10_000 {
        let Some(edited) = edit(&lines, &mut random) else { continue };
        tried += 1;
        // Cutting the last line off is what only a checkpoint can show (AU-07), so one is given.
        assert!(check(&edited, Some(&head)).is_err(), "edit {tried} went unnoticed");
    }
}

#[test]
fn au_06_the_first_bad_record_is_named() {
    let (bytes, _) = trail(10);
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let with = |lines: Vec<String>| check((lines.join("\n") + "\n").as_bytes(), None).unwrap_err();
    let mut changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
    changed[4] = changed[4].replace("reader", "writer");
    let error = with(changed);
    assert!(error.starts_with("audit.jsonl:5: record 5: the record was changed"), "{error}");
    let mut missing: Vec<String> = lines.iter().map(ToString::to_string).collect();
    missing.remove(6);
    let error = with(missing);
    assert!(error.starts_with("audit.jsonl:7: record 7: number 8 where 7 is due"), "{error}");
    let error = with(lines[1..].iter().map(ToString::to_string).collect());
    assert!(error.contains("records before this one are missing"), "{error}");
}

#[test]
fn au_07_a_cut_tail_shows_only_against_a_checkpoint() {
    let (bytes, head) = trail(10);
    let cut = bytes.iter().rposition(|b| *b == b'\n').unwrap();
    let cut = bytes[..cut].iter().rposition(|b| *b == b'\n').unwrap();
    assert_eq!(check(&bytes[..=cut], None).unwrap().head.seq, 10);
    let error = check(&bytes[..=cut], Some(&head)).unwrap_err();
    assert!(error.contains("ends at record 10: the tail is missing"), "{error}");
}

#[test]
fn au_07_a_rewritten_trail_shows_against_a_checkpoint() {
    let (_, head) = trail(10);
    let mut out = Vec::new();
    let mut other = seal(&start(), &genesis(), times(0), &mut out).unwrap();
    for _ in 0..20 {
        other = seal(&other, &Record::new(Event::ToolCall), times(1), &mut out).unwrap();
    }
    check(&out, None).unwrap();
    assert!(check(&out, Some(&head)).unwrap_err().contains("rewritten"));
    let foreign = Head { chain: "f".repeat(32), ..head };
    assert!(check(&out, Some(&foreign)).unwrap_err().contains("belong to chain"));
}

#[test]
fn au_14_the_number_rises_although_the_clock_goes_back() {
    let mut out = Vec::new();
    let mut head = seal(&start(), &genesis(), times(100), &mut out).unwrap();
    for (second, monotonic) in [(50, 1), (10, 2), (200, 3)] {
        let at = Times { monotonic: Duration::from_secs(monotonic), ..times(second) };
        head = seal(&head, &Record::new(Event::ToolCall), at, &mut out).unwrap();
    }
    assert_eq!(check(&out, None).unwrap().head.seq, 4);
    let lines: Vec<Value> = out
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let seqs: Vec<_> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let monotonic: Vec<_> = lines.iter().map(|line| line["mono_us"].as_u64().unwrap()).collect();
    assert_eq!(monotonic, [100_000_000, 1_000_000, 2_000_000, 3_000_000]);
    assert!(lines[1]["time"].as_str() < lines[0]["time"].as_str());
}

#[test]
fn au_12_what_a_client_says_of_itself_stands_apart() {
    let mut out = Vec::new();
    let record = Record::new(Event::ToolCall)
        .principal("reader")
        .asserted("client_name", "claude")
        .asserted("principal", "root");
    seal(&start(), &record, times(0), &mut out).unwrap();
    let line: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(line["principal"], "reader");
    assert_eq!(line["asserted"], json!({"client_name": "claude", "principal": "root"}));
}

/// A record with one text in every place that a caller can reach.
fn with_text_everywhere(text: &str) -> Record {
    let mut record = Record::new(Event::ToolCall)
        .request_id(text)
        .principal(text)
        .person(text)
        .tool(text)
        .cluster(text)
        .node(text)
        .change_set(text)
        .link(text)
        .upid(text)
        .denied(text, text)
        .outcome(text)
        .asserted(text.to_owned(), text)
        .argument(text.to_owned(), json!({ text: [text, {text: text}] }))
        .detail(text.to_owned(), text);
    record.bound();
    record
}

fn one_line(record: &Record) -> Value {
    let mut out = Vec::new();
    seal(&start(), record, times(0), &mut out).unwrap();
    assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
    assert_eq!(out.last(), Some(&b'\n'));
    assert!(out[..out.len() - 1].iter().all(|b| (0x20..0x7f).contains(b)), "only printable ASCII");
    assert!(out.len() < 512 * 1024, "{} bytes", out.len());
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn au_03_hostile_text_stays_one_line_and_reads_back_equal() {
    for text in [
        "\n{\"event\":\"fake\"}",
        "\r\n\u{1b}[2J\u{9b}31m",
        "\u{2028}\u{2029}\u{85}\0\x7f",
        "\u{202e}drowssap\u{2066}",
        "\"}\\u0000{\"",
        "🦀 ünïcode",
    ] {
        let line = one_line(&with_text_everywhere(text));
        for member in ["principal", "tool", "cluster", "node", "reason", "code", "request_id", "outcome"] {
            assert_eq!(line[member], text, "{member}");
        }
        assert_eq!(line["asserted"][text], text);
        assert_eq!(line["arguments"][text][text][1][text], text);
        assert_eq!(line["event"], "tool.call");
        assert_eq!(line.get("truncated"), None);
    }
}

#[test]
fn au_03_a_megabyte_is_cut_and_the_cut_is_recorded() {
    let text = "ä".repeat(512 * 1024);
    let line = one_line(&with_text_everywhere(&text));
    assert_eq!(line["truncated"]["principal"], 1024 * 1024);
    let kept = line["principal"].as_str().unwrap();
    assert!(!kept.is_empty() && text.starts_with(kept));
    // Too many and too deep are cut as well.
    let mut deep = json!(1);
    for _ in 0..50 {
        deep = json!([deep]);
    }
    let many: Vec<usize> = (0..1000).collect();
    let mut record = Record::new(Event::ToolCall).argument("deep", deep).argument("many", many);
    record.bound();
    let line = one_line(&record);
    assert_eq!(line["arguments"]["many"].as_array().unwrap().len(), 64);
    assert_eq!(line["truncated"]["arguments.many"], 1000);
}

#[test]
fn au_04_anything_shaped_like_a_token_is_taken_out() {
    let secret = "A".repeat(43);
    let token = format!("pxw_abcdefghij_{secret}_0123abcd");
    for text in [
        token.clone(),
        format!("Bearer {token}, please"),
        format!("https://h/transfers/upload/{secret}?x"),
        format!("PVEAPIToken=u@pve!t={secret}"),
    ] {
        let line = one_line(&with_text_everywhere(&text)).to_string();
        assert!(!line.contains(&secret), "{line}");
        assert!(line.contains("[secret]"));
    }
}

proptest! {
    #[test]
    fn au_03_any_text_is_one_line_that_reads_back(text in any::<String>()) {
        let line = one_line(&with_text_everywhere(&text));
        prop_assert_eq!(line["tool"].as_str(), Some(text.as_str()));
    }

    #[test]
    fn au_03_any_bytes_never_panic_the_verifier(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = check(&bytes, None);
    }
}
