//! The story, a step at a time.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::scene::Scene;

/// The container that takes the file, and the one that is destroyed.
const TAKES_FILE: u32 = 200;
const DISPOSABLE: u32 = 201;
const DEST: &str = "/root/image.bin";
const MIB: usize = 1024 * 1024;
const FILE_MIB: usize = 64;

/// A step that did not go as it must.
pub(crate) struct Failed {
    pub(crate) step: u8,
    pub(crate) error: anyhow::Error,
}

/// Prints what happens, and counts.
struct Teller {
    step: u8,
    started: Instant,
}

impl Teller {
    fn begin(&mut self, what: &str) {
        self.step += 1;
        self.started = Instant::now();
        println!("{:>2}. {what}", self.step);
    }

    fn end(&self, what: impl AsRef<str>) {
        for line in what.as_ref().lines() {
            println!("      {line}");
        }
        println!("      ({:.1} ms)", self.started.elapsed().as_secs_f64() * 1000.0);
    }
}

/// Tells it to its end, or to the first step that fails.
pub(crate) async fn tell(scene: &Scene) -> Result<(), Failed> {
    let mut teller = Teller { step: 0, started: Instant::now() };
    all(scene, &mut teller).await.map_err(|error| Failed { step: teller.step, error })
}

async fn all(scene: &Scene, teller: &mut Teller) -> anyhow::Result<()> {
    look(scene, teller).await?;
    let plan = plan(scene, teller).await?;
    approve_and_apply(scene, teller, &plan).await?;
    upload(scene, teller).await?;
    audit(scene, teller)
}

async fn look(scene: &Scene, teller: &mut Teller) -> anyhow::Result<()> {
    teller.begin("The agent lists the containers of cluster alpha");
    let fields = json!({"cluster": "alpha", "fields": ["vmid", "name", "node", "status", "tags"]});
    let list = scene.agent.done("get_containers", fields).await?;
    let items = list["items"].as_array().context("no items")?;
    ensure!(items.iter().any(|guest| guest["vmid"] == DISPOSABLE), "container {DISPOSABLE} is not listed");
    let rows: Vec<String> = items
        .iter()
        .map(|guest| {
            let word = |key: &str| guest[key].as_str().unwrap_or("-").to_owned();
            format!(
                "{}  {:<12} {:<6} {:<8} {}",
                guest["vmid"],
                word("name"),
                word("node"),
                word("status"),
                guest["tags"]
            )
        })
        .collect();
    teller.end(rows.join("\n"));

    teller.begin("A reader tries to plan a destruction");
    let arguments = json!({"cluster": "alpha", "vmid": DISPOSABLE, "op": "destroy_guest"});
    let why = scene.reader.refused("plan_proxmox_destroy", arguments, "insufficient_scope").await?;
    teller.end(format!("refused: {why}"));
    Ok(())
}

async fn plan(scene: &Scene, teller: &mut Teller) -> anyhow::Result<Value> {
    teller.begin("The agent plans it");
    let arguments = json!({"cluster": "alpha", "vmid": DISPOSABLE, "op": "destroy_guest"});
    let plan = scene.agent.done("plan_proxmox_destroy", arguments).await?;
    let preview = plan["preview"].as_str().context("no preview")?;
    teller.end(format!("{preview}\ndigest            {}", plan["digest"].as_str().context("no digest")?));

    teller.begin("The agent cannot approve its own plan, nor apply it unapproved");
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": DISPOSABLE});
    let why = scene.agent.refused("approve_proxmox_change_set", approval, "insufficient_scope").await?;
    let set = json!({"change_set_id": plan["change_set_id"]});
    let unapproved = scene.agent.refused("apply_proxmox_change_set", set, "not_approved").await?;
    ensure!(scene.lab.cluster("alpha").guest_exists(DISPOSABLE), "the guest is gone without an approval");
    teller.end(format!("refused: {why}\nrefused: {unapproved}"));
    Ok(plan)
}

async fn approve_and_apply(scene: &Scene, teller: &mut Teller, plan: &Value) -> anyhow::Result<()> {
    teller.begin("A different human reads the preview and approves exactly that digest");
    let set = json!({"change_set_id": plan["change_set_id"]});
    let seen = scene.approver.done("get_proxmox_change_set", set.clone()).await?;
    ensure!(
        seen["digest"] == plan["digest"] && seen["preview"] == plan["preview"],
        "the approver sees another plan"
    );
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": seen["digest"], "confirm_vmid": DISPOSABLE});
    let approved = scene.approver.done("approve_proxmox_change_set", approval).await?;
    teller.end(format!("state {}, approved by {}", approved["state"], approved["approved_by"]));

    teller.begin("The agent applies it, once");
    let applied = scene.agent.done("apply_proxmox_change_set", set.clone()).await?;
    ensure!(applied["state"] == "applied", "it ended as {}", applied["state"]);
    ensure!(!scene.lab.cluster("alpha").guest_exists(DISPOSABLE), "the guest is still there");
    let again = scene.agent.refused("apply_proxmox_change_set", set, "not_approved").await?;
    teller.end(format!("task {}\na second apply is refused: {again}", applied["steps"][0]["upid"]));
    Ok(())
}

async fn upload(scene: &Scene, teller: &mut Teller) -> anyhow::Result<()> {
    teller.begin("The agent mints a single-use upload link into container 200");
    let minted = scene
        .agent
        .done("proxmox_upload_link", json!({"cluster": "alpha", "vmid": TAKES_FILE, "dest": DEST}))
        .await?;
    let url = minted["url"].as_str().context("no url")?;
    teller.end(format!("expires in {} s, takes up to {} bytes", minted["expires_in"], minted["max_bytes"]));

    teller.begin(&format!("The system's curl uploads {FILE_MIB} MiB through it"));
    let (file, expected) = random_file(scene.folder.path())?;
    let receipt = curl(&file, url).await?;
    let megabytes = (FILE_MIB * MIB) as f64 / 1e6;
    let rate = megabytes / teller.started.elapsed().as_secs_f64();
    teller.end(format!(
        "sha256 {} verified in the {} ({rate:.0} MB/s with making the file)",
        receipt["sha256"], receipt["verified_at"]
    ));

    teller.begin("The hash is the file's, everywhere");
    let outcome = scene.agent.done("get_transfer", json!({"link_id": minted["link_id"]})).await?;
    ensure!(outcome["state"] == "ok" && outcome["checksum_verified"] == true, "the outcome is {outcome}");
    let landed =
        hash_of(&scene.lab.cluster("alpha").guest_root(TAKES_FILE).join(DEST.trim_start_matches('/')))?;
    ensure!(
        receipt["sha256"] == expected && outcome["sha256"] == expected && landed == expected,
        "the hashes differ"
    );
    teller.end(format!("{expected}: the file's, the uploader's receipt, the outcome the agent reads, and the guest's own copy"));
    Ok(())
}

fn audit(scene: &Scene, teller: &mut Teller) -> anyhow::Result<()> {
    teller.begin("The audit trail's hash chain is verified");
    let path = scene.folder.path().join("state/audit.jsonl");
    let summary = proxward::audit::verify(&path).map_err(|error| anyhow!("{error}"))?;
    teller.end(format!("{} records, unbroken", summary.records));
    Ok(())
}

/// A file of random bytes and its hash.
fn random_file(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    let path = folder.join("image.bin");
    let mut file = std::fs::File::create(&path)?;
    let mut block = vec![0_u8; MIB];
    getrandom::fill(&mut block).map_err(|error| anyhow!("no randomness: {error}"))?;
    let mut hasher = Sha256::new();
    for number in 0..FILE_MIB {
        // One random block, told apart by its number: nothing on the way can get by with less than all of it.
        for (at, byte) in block.iter_mut().zip(number.to_le_bytes()) {
            *at = byte;
        }
        hasher.update(&block);
        file.write_all(&block)?;
    }
    Ok((path, data_encoding::HEXLOWER.encode(&hasher.finalize())))
}

async fn curl(file: &Path, url: &str) -> anyhow::Result<Value> {
    let output = tokio::process::Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--upload-file"])
        .arg(file)
        .arg(url)
        .output()
        .await
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow!("curl is not installed; install it, on Debian with `apt-get install curl`")
            }
            _ => anyhow!("curl could not be started: {error}"),
        })?;
    ensure!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr).trim());
    let receipt: Value = serde_json::from_slice(&output.stdout).context("curl printed no JSON")?;
    ensure!(receipt.get("error").is_none(), "the upload failed: {receipt}");
    Ok(receipt)
}

fn hash_of(path: &Path) -> anyhow::Result<String> {
    let mut file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut hasher = Sha256::new();
    let mut block = vec![0_u8; MIB];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(data_encoding::HEXLOWER.encode(&hasher.finalize())),
            read => hasher.update(block.get(..read).unwrap_or_default()),
        }
    }
}
