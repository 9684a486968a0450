//! A door keeper: `authz` in front of something that is no hypervisor at all.
//!
//! Doors are numbered like guests, a zone is a pool, a sticker is a tag, and a door the fire brigade has
//! sealed carries the protection flag. The keeper speaks one line per request over TCP:
//!
//! ```text
//! <bearer> <tool> <door>
//! ```
//!
//! `cargo run -p authz --example door` starts it on a free loopback port, lets three callers try their
//! luck and ends. With `--listen 127.0.0.1:4000` it prints their tokens and stays, so that you can try
//! with `nc`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use authz::token::edit::{NewEntry, add_entry};
use authz::{
    ActorKind, Denial, Grant, GuestFacts, GuestKind, Known, Lookup, MintedToken, Overrides, Permit,
    Protection, Tier, TierSet, TokenRefusal, TokenTable, ToolRule, Vmid, WaiverSet, admit, decide,
    mint_token, sha256_entry,
};
use jiff::Timestamp;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The building; to `authz` a cluster.
const HOUSE: &str = "house";

const LOOK: ToolRule =
    ToolRule { name: "look", tier: Tier::Read, interrupts: false, writes_guest: false, wildcard: true };
const OPEN: ToolRule = ToolRule { name: "open", tier: Tier::Low, wildcard: false, ..LOOK };
const LOCK: ToolRule = ToolRule { name: "lock", interrupts: true, ..OPEN };
const REMOVE: ToolRule = ToolRule { name: "remove", tier: Tier::Destructive, ..OPEN };
const TOOLS: [ToolRule; 4] = [LOOK, OPEN, LOCK, REMOVE];

struct Door {
    zone: &'static str,
    stickers: &'static [&'static str],
    sealed: bool,
}

struct Keeper {
    tokens: TokenTable,
    waivers: WaiverSet,
    protection: Protection,
    doors: BTreeMap<Vmid, Door>,
}

impl Keeper {
    /// Answers one request. Everything that decides is in the four calls to `authz`.
    fn answer(&self, line: &str, now: Timestamp) -> String {
        let mut words = line.split_whitespace();
        let (Some(bearer), Some(tool), Some(door), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return "expected: <bearer> <tool> <door>".to_owned();
        };
        let principal = match self.tokens.lookup(bearer, now) {
            Lookup::Principal(principal) => Ok(principal),
            // A real server runs this one where it may block, behind a limit.
            Lookup::Argon2(candidate) => candidate.verify(bearer),
            Lookup::Refused(refusal) => Err(refusal),
        };
        let principal = match principal {
            Ok(principal) => principal,
            Err(refusal) => return self.unauthenticated(refusal),
        };
        let Some(rule) = TOOLS.iter().find(|rule| rule.name == tool) else {
            return "there is no such tool; try look, open, lock or remove".to_owned();
        };
        match self.decide(&principal, rule, door, now) {
            Ok(permit) => Self::act(&permit),
            Err(denial) => {
                eprintln!("  audit: {} {}", denial.code(), denial.audit_detail());
                format!("no: {denial}")
            }
        }
    }

    fn unauthenticated(&self, refusal: TokenRefusal) -> String {
        eprintln!("  audit: bearer refused, {}", refusal.code());
        format!("no: {refusal}")
    }

    fn decide(
        &self,
        principal: &Arc<authz::Principal>,
        rule: &ToolRule,
        door: &str,
        now: Timestamp,
    ) -> Result<Permit, Denial> {
        let admitted = admit(principal, rule, Some(HOUSE), now)?;
        // An unreadable number, an absent door and someone else's door answer with the same bytes.
        let vmid: Vmid = door.parse().map_err(|_| Denial::guest_unknown())?;
        let found = self.doors.get(&vmid).ok_or_else(Denial::guest_unknown)?;
        let facts = GuestFacts {
            cluster: HOUSE.to_owned(),
            vmid,
            kind: GuestKind::Qemu,
            name: None,
            tags: Known::Known(found.stickers.iter().map(|sticker| (*sticker).to_owned()).collect()),
            pool: Known::Known(Some(found.zone.to_owned())),
            protection: Known::Known(found.sealed),
        };
        let overrides = Overrides { waivers: &self.waivers, lab_mode: false };
        decide(admitted, &facts, rule.name, principal.name(), &self.protection, &overrides, now)
    }

    /// Takes the permit, so it cannot be reached past the decision.
    fn act(permit: &Permit) -> String {
        let door = permit.facts().map(|facts| facts.vmid.to_string()).unwrap_or_default();
        let lifted = permit.lift().map(|lift| format!(" ({lift})")).unwrap_or_default();
        format!("ok: {} did `{}` to door {door}{lifted}", permit.principal().name(), permit.rule().name)
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut writer = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            writeln!(writer, "{}", self.answer(&line?, Timestamp::now()))?;
        }
        Ok(())
    }
}

fn mint() -> Result<MintedToken, AnyError> {
    let (mut secret, mut id) = ([0; 32], [0; 10]);
    getrandom::fill(&mut secret)?;
    getrandom::fill(&mut id)?;
    Ok(mint_token(secret, id))
}

struct Caller {
    name: &'static str,
    tools: &'static [&'static str],
    guests: &'static [&'static str],
    actions: &'static [Tier],
}

const CALLERS: [Caller; 3] = [
    Caller { name: "visitor", tools: &["*"], guests: &["tag:public"], actions: &[Tier::Read] },
    Caller {
        name: "porter",
        tools: &["look", "open", "lock"],
        guests: &["pool:ground", "vmid:201-299"],
        actions: &[Tier::Read, Tier::Low],
    },
    Caller {
        name: "builder",
        tools: &["*", "remove"],
        guests: &["*"],
        actions: &[Tier::Read, Tier::Destructive],
    },
];

/// The tokens' texts by name.
type Minted = Vec<(&'static str, MintedToken)>;

fn keeper() -> Result<(Keeper, Minted), AnyError> {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (mut file, mut minted) = (String::new(), Vec::new());
    for Caller { name, tools, guests, actions } in CALLERS {
        let token = mint()?;
        let guests = guests.iter().map(|word| word.parse()).collect::<Result<Vec<_>, _>>()?;
        let grant = Grant::new(guests, TierSet::from_iter(actions.iter().copied()));
        let entry = NewEntry {
            name,
            hash: &sha256_entry(&token.text),
            id: &token.id,
            grant: Some(&grant),
            tools: &words(tools),
            devices: &words(&[HOUSE]),
            person: None,
            actor_type: Some(ActorKind::Human),
            expires: None,
            provenance: &authz::Provenance::NONE,
        };
        file = add_entry(&file, &entry)?;
        minted.push((name, token));
    }
    let waivers = r#"{"version": 1, "waivers": [{"cluster": "house", "vmid": 202, "until": "9999-01-01T00:00:00Z",
        "reason": "the hinge is being replaced", "ticket": "JOB-7", "ops": ["remove"]}]}"#;
    let is_known = |op: &str| TOOLS.iter().any(|rule| rule.name == op);
    let report = |problems: Vec<authz::FileProblem>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let (waivers, warnings) =
        WaiverSet::parse(waivers.as_bytes(), is_known, Timestamp::now()).map_err(report)?;
    for warning in warnings {
        eprintln!("  waivers: {warning}");
    }
    let door = |number, zone, stickers, sealed| {
        Vmid::new(number).map(|vmid| (vmid, Door { zone, stickers, sealed }))
    };
    let doors = [
        door(101, "ground", &["public"], false),
        door(102, "ground", &[], true),
        door(202, "upper", &["protected"], false),
        door(301, "roof", &[], false),
    ];
    let keeper = Keeper {
        tokens: TokenTable::parse(file.as_bytes()).map_err(report)?,
        waivers,
        protection: Protection::default(),
        doors: doors.into_iter().flatten().collect(),
    };
    Ok((keeper, minted))
}

fn main() -> Result<(), AnyError> {
    let (keeper, minted) = keeper()?;
    let keeper = Arc::new(keeper);
    let mut arguments = std::env::args().skip(1);
    let stay = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => None,
        (Some("--listen"), Some(address)) => Some(address),
        _ => return Err("expected no argument, or --listen ADDRESS".into()),
    };
    let listener = TcpListener::bind(stay.as_deref().unwrap_or("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    if stay.is_some() {
        println!("listening on {address}");
        for (name, token) in &minted {
            println!("{name}: {}", *token.text);
        }
    }
    let server = Arc::clone(&keeper);
    let serving = std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.serve(stream));
        }
    });
    if stay.is_some() {
        return serving.join().map_err(|_| "the listener failed".into());
    }
    let stream = TcpStream::connect(address)?;
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream);
    for (name, token) in &minted {
        for (tool, door) in [
            ("look", "101"),
            ("look", "301"),
            ("look", "999"),
            ("open", "102"),
            ("lock", "102"),
            ("remove", "202"),
        ] {
            println!("{name}: {tool} {door}");
            writeln!(writer, "{} {tool} {door}", *token.text)?;
            let mut answer = String::new();
            reader.read_line(&mut answer)?;
            print!("  {answer}");
        }
    }
    writeln!(writer, "pxw_guess look 101")?;
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    print!("someone: look 101\n  {answer}");
    Ok(())
}
