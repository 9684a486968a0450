//! Lists the guests of a cluster: `list_guests ENDPOINT TOKEN_ID [CA_FILE]`, the secret in `PVE_TOKEN_SECRET`.

use std::{env, error::Error, fs};

use proxmox_api::{ApiToken, Client, Endpoint, SecretString, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(endpoint), Some(token_id)) = (args.next(), args.next()) else {
        return Err("usage: list_guests ENDPOINT TOKEN_ID [CA_FILE]".into());
    };
    let trust = args.next().map_or(Ok(Trust::System), |file| fs::read_to_string(file).map(Trust::Ca))?;
    let secret = SecretString::from(env::var("PVE_TOKEN_SECRET")?);
    let client = Client::builder()
        .endpoint(Endpoint::parse(&endpoint)?)
        .token(ApiToken::new(token_id, secret)?)
        .trust(trust)
        .build()?;

    let inventory = client.inventory().await?;
    for guest in inventory.guests() {
        let Some(address) = guest.guest() else { continue };
        let (name, status) = (guest.name(), guest.status());
        println!("{address}\t{}\t{}", name.as_deref().unwrap_or("-"), status.as_deref().unwrap_or("unknown"));
    }
    eprintln!("{} entries could not be read", inventory.skipped());
    Ok(())
}
