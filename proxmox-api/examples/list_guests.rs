//! Lists the guests of a cluster: `list_guests ENDPOINT TOKEN_ID [CA_FILE]`, the secret in `PVE_TOKEN_SECRET`.

use std::{env, error::Error, fs};

use proxmox_api::{ApiToken, Client, Endpoint, SecretString, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (endpoint, token_id, ca_file) = match args.as_slice() {
        [endpoint, token_id] => (endpoint, token_id, None),
        [endpoint, token_id, ca_file] => (endpoint, token_id, Some(ca_file)),
        _ => return Err("usage: list_guests ENDPOINT TOKEN_ID [CA_FILE]".into()),
    };
    let secret = SecretString::from(env::var("PVE_TOKEN_SECRET")?);
    let client = Client::builder()
        .endpoint(Endpoint::parse(endpoint)?)
        .token(ApiToken::new(token_id, secret)?)
        .trust(ca_file.map_or(Ok(Trust::System), |file| fs::read_to_string(file).map(Trust::Ca))?)
        .build()?;

    let guests = client.guests().await?;
    for guest in &guests {
        let Some(address) = guest.guest() else { continue };
        let name = guest.name.as_deref().unwrap_or("-");
        println!("{address}\t{name}\t{}", guest.status.as_deref().unwrap_or("unknown"));
    }
    if guests.skipped > 0 {
        eprintln!("{} entries could not be read", guests.skipped);
    }
    Ok(())
}
