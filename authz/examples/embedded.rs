//! `authz` in front of printers: numbered, one of them protected. `cargo run -p authz --example embedded`
use std::sync::Arc;

use authz::{
    Denial, GuestFacts, GuestKind, Known, Lookup, Overrides, Permit, Principal, Protection, Tier, TokenTable,
    ToolRule, Vmid, WaiverSet, admit, decide, mint_token, sha256_entry,
};

const PRINT: ToolRule =
    ToolRule { name: "print", tier: Tier::Low, interrupts: false, writes_guest: false, wildcard: false };
const PURGE: ToolRule = ToolRule { name: "purge", interrupts: true, ..PRINT };

fn printer(number: u32) -> Result<GuestFacts, Denial> {
    let tag = match number {
        101 => "payroll",
        102 => "lobby",
        _ => return Err(Denial::guest_unknown()),
    };
    Ok(GuestFacts {
        cluster: "office".into(),
        vmid: Vmid::new(number).ok_or_else(Denial::guest_unknown)?,
        kind: GuestKind::Qemu,
        name: None,
        tags: Known::Known(vec![tag.into()]),
        pool: Known::Known(None),
        protection: Known::Known(false),
    })
}

fn may(
    who: &Arc<Principal>,
    rule: &ToolRule,
    number: u32,
    protection: &Protection,
) -> Result<Permit, Denial> {
    let now = jiff::Timestamp::now();
    let admitted = admit(who, rule, Some("office"), now)?;
    let overrides = Overrides { waivers: &WaiverSet::empty(), lab_mode: false };
    decide(admitted, &printer(number)?, rule.name, who.name(), protection, &overrides, now)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let token = mint_token([7; 32], [7; 10]).text;
    let file = format!(
        r#"{{"version": 1, "tokens": {{"desk": {{"hash": "{}", "tools": ["print", "purge"], "devices": ["office"],
           "grant": {{"guests": ["vmid:100-199"], "actions": ["low"]}}}}}}}}"#,
        sha256_entry(&token)
    );
    let table = TokenTable::parse(file.as_bytes()).map_err(|problems| format!("{problems:?}"))?;
    let Lookup::Principal(who) = table.lookup(&token, jiff::Timestamp::now()) else {
        return Err("who?".into());
    };
    let protection = Protection::new([], ["payroll"])?;
    for (number, rule) in [(101, PRINT), (101, PURGE), (102, PURGE), (999, PRINT)] {
        match may(&who, &rule, number, &protection) {
            Ok(permit) => println!("{number} {} -> ok", permit.rule().name),
            Err(denial) => println!("{number} {} -> no: {denial}", rule.name),
        }
    }
    Ok(())
}
