//! Formats of VM options whose keys PVE's API description does not tell.

use crate::api::format::named;

const UNKNOWN: &str = "property is not defined in schema and the schema does not allow additional properties";

/// Checks a value of one of these formats; `None` for another format. The error is PVE's text with its line feed.
pub(crate) fn property(format: &str, name: &str, value: &str) -> Option<Result<(), String>> {
    let pairs = || {
        value
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| part.split_once('=').unwrap_or(("", part)))
    };
    let problems: Vec<String> = match format {
        "pve-qm-boot" => pairs().filter_map(|(key, value)| boot(name, key, value)).collect(),
        "pve-qm-ipconfig" => {
            let keys: Vec<&str> = pairs().map(|(key, _)| key).collect();
            let mut problems: Vec<String> =
                pairs().filter_map(|(key, value)| ipconfig(name, key, value)).collect();
            for (gateway, needed) in [("gw", "ip"), ("gw6", "ip6")] {
                if keys.contains(&gateway) && !keys.contains(&needed) {
                    problems
                        .push(format!("{name}.{needed}: missing property required by '{name}.{gateway}'\n"));
                }
            }
            problems
        }
        "pve-qm-smbios1" => pairs().filter_map(|(key, value)| smbios(name, key, value)).collect(),
        "pve-vm-cpu-conf" => {
            let model =
                pairs().find(|(key, _)| matches!(*key, "" | "cputype")).map_or("", |(_, model)| model);
            if !model.is_empty() && !model.starts_with("custom-") && !CPU_MODELS.contains(&model) {
                let hint = "(missing 'custom-' prefix?)";
                return Some(Err(format!("Built-in cputype '{model}' is not defined {hint}\n")));
            }
            let flags = pairs().filter(|(key, _)| *key == "flags").flat_map(|(_, flags)| flags.split(';'));
            let known =
                |flag: &str| flag.strip_prefix(['+', '-']).is_some_and(|name| CPU_FLAGS.contains(&name));
            let mut flags = flags.filter(|flag| !flag.is_empty());
            return Some(if flags.all(known) {
                Ok(())
            } else {
                Err(format!("VM-specific CPU flags must be a subset of: {}\n", CPU_FLAGS.join(", ")))
            });
        }
        "pve-qm-hostpci" => pairs().filter_map(|(key, value)| hostpci(name, key, value)).collect(),
        _ => return None,
    };
    Some(if problems.is_empty() { Ok(()) } else { Err(format!("format error\n{}", problems.concat())) })
}

/// The CPU models that QEMU has and PVE offers.
const CPU_MODELS: &[&str] = &[
    "486",
    "athlon",
    "Broadwell",
    "Broadwell-IBRS",
    "Broadwell-noTSX",
    "Broadwell-noTSX-IBRS",
    "Cascadelake-Server",
    "Cascadelake-Server-noTSX",
    "Cascadelake-Server-v2",
    "Cascadelake-Server-v4",
    "Cascadelake-Server-v5",
    "Conroe",
    "Cooperlake",
    "Cooperlake-v2",
    "core2duo",
    "coreduo",
    "EPYC",
    "EPYC-Genoa",
    "EPYC-IBPB",
    "EPYC-Milan",
    "EPYC-Milan-v2",
    "EPYC-Rome",
    "EPYC-Rome-v2",
    "EPYC-Rome-v3",
    "EPYC-Rome-v4",
    "EPYC-Turin",
    "EPYC-v3",
    "EPYC-v4",
    "GraniteRapids",
    "Haswell",
    "Haswell-IBRS",
    "Haswell-noTSX",
    "Haswell-noTSX-IBRS",
    "host",
    "Icelake-Client",
    "Icelake-Client-noTSX",
    "Icelake-Server",
    "Icelake-Server-noTSX",
    "Icelake-Server-v3",
    "Icelake-Server-v4",
    "Icelake-Server-v5",
    "Icelake-Server-v6",
    "IvyBridge",
    "IvyBridge-IBRS",
    "KnightsMill",
    "kvm32",
    "kvm64",
    "max",
    "Nehalem",
    "Nehalem-IBRS",
    "Opteron_G1",
    "Opteron_G2",
    "Opteron_G3",
    "Opteron_G4",
    "Opteron_G5",
    "Penryn",
    "pentium",
    "pentium2",
    "pentium3",
    "phenom",
    "qemu32",
    "qemu64",
    "SandyBridge",
    "SandyBridge-IBRS",
    "SapphireRapids",
    "SapphireRapids-v2",
    "SierraForest",
    "Skylake-Client",
    "Skylake-Client-IBRS",
    "Skylake-Client-noTSX-IBRS",
    "Skylake-Client-v4",
    "Skylake-Server",
    "Skylake-Server-IBRS",
    "Skylake-Server-noTSX-IBRS",
    "Skylake-Server-v4",
    "Skylake-Server-v5",
    "Westmere",
    "Westmere-IBRS",
    "x86-64-v2",
    "x86-64-v2-AES",
    "x86-64-v3",
    "x86-64-v4",
];

/// The flags that may be given per VM.
const CPU_FLAGS: &[&str] = &[
    "aes",
    "amd-no-ssb",
    "amd-ssbd",
    "hv-evmcs",
    "hv-tlbflush",
    "ibpb",
    "md-clear",
    "nested-virt",
    "pcid",
    "pdpe1gb",
    "spec-ctrl",
    "ssbd",
    "virt-ssbd",
];

/// The order of devices, or the old letters.
fn boot(name: &str, key: &str, value: &str) -> Option<String> {
    match key {
        "order" => {
            let device = |text: &&str| {
                let base = text.trim_end_matches(|char: char| char.is_ascii_digit());
                base.len() < text.len()
                    && matches!(base, "ide" | "sata" | "scsi" | "virtio" | "net" | "usb" | "hostpci")
            };
            let wrong = value.split(';').filter(|text| !text.is_empty()).find(|text| !device(text))?;
            Some(format!("{name}.order: invalid format - invalid boot device '{wrong}'\n\n"))
        }
        "" | "legacy" => {
            let fits = (1..=4).contains(&value.len()) && value.chars().all(|char| "acdn".contains(char));
            (!fits).then(|| format!("{name}.legacy: value does not match the regex pattern\n"))
        }
        _ => Some(format!("{name}.{key}: {UNKNOWN}\n")),
    }
}

fn ipconfig(name: &str, key: &str, value: &str) -> Option<String> {
    let format = match key {
        "ip" => "pve-ipv4-config",
        "gw" => "ipv4",
        "ip6" => "pve-ipv6-config",
        "gw6" => "ipv6",
        _ => return Some(format!("{name}.{key}: {UNKNOWN}\n")),
    };
    named(format, value).err().map(|text| format!("{name}.{key}: invalid format - {text}\n"))
}

/// The address of a device of the host (`0000:01:00.0`), several with `;`.
fn hostpci(name: &str, key: &str, value: &str) -> Option<String> {
    if !matches!(key, "" | "host") {
        return None;
    }
    let hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let address = |text: &str| {
        let parts: Vec<&str> = text.split([':', '.']).collect();
        match (parts.as_slice(), text.contains('.')) {
            ([bus, slot], false) => hex(bus, 2..=2) && hex(slot, 2..=2),
            ([bus, slot, function], true) => hex(bus, 2..=2) && hex(slot, 2..=2) && hex(function, 1..=1),
            ([domain, bus, slot], false) => hex(domain, 4..=8) && hex(bus, 2..=2) && hex(slot, 2..=2),
            ([domain, bus, slot, function], true) => {
                hex(domain, 4..=8) && hex(bus, 2..=2) && hex(slot, 2..=2) && hex(function, 1..=1)
            }
            _ => false,
        }
    };
    (!value.split(';').all(address)).then(|| format!("{name}.host: value does not match the regex pattern\n"))
}

fn smbios(name: &str, key: &str, value: &str) -> Option<String> {
    match key {
        "uuid" => {
            let lengths: Vec<usize> = value.split('-').map(str::len).collect();
            let hex = value.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
            (lengths != [8, 4, 4, 4, 12] || !hex)
                .then(|| format!("{name}.uuid: value does not match the regex pattern\n"))
        }
        "base64" | "family" | "manufacturer" | "product" | "serial" | "sku" | "version" => None,
        _ => Some(format!("{name}.{key}: {UNKNOWN}\n")),
    }
}
