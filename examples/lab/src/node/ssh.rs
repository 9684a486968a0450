//! The SSH listener of a node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::PrivateKey;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg, ChannelWriteHalf, MethodKind, MethodSet};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::node::exec::{self, Input};
use crate::node::{Node, sftp};

/// Accepts connections until the lab is dropped.
pub(crate) async fn run(
    node: Node,
    listener: TcpListener,
    host_key: PrivateKey,
    mut shutdown: watch::Receiver<bool>,
) {
    let config = Arc::new(Config {
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: Duration::from_millis(10),
        keys: vec![host_key],
        nodelay: true,
        ..Config::default()
    });
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            _ = shutdown.wait_for(|down| *down) => return,
        };
        let (node, config, shutdown) = (node.clone(), config.clone(), shutdown.clone());
        tokio::spawn(serve(node, config, stream, shutdown));
    }
}

async fn serve(node: Node, config: Arc<Config>, stream: TcpStream, mut shutdown: watch::Receiver<bool>) {
    let switches = node.faults.switches();
    if switches.refuse {
        return;
    }
    if switches.hang_connect {
        let _ = shutdown.wait_for(|down| *down).await;
        return;
    }
    // Nagle's algorithm would add 40 ms to every small exchange.
    let _ = stream.set_nodelay(true);
    let login = Login { node, channels: HashMap::new() };
    let session = tokio::select! {
        session = russh::server::run_stream(config, stream, login) => session,
        _ = shutdown.wait_for(|down| *down) => return,
    };
    if let Ok(session) = session {
        let handle = session.handle();
        tokio::select! {
            _ = session => {}
            () = down(&mut shutdown) => {
                let _ = handle.disconnect(russh::Disconnect::ByApplication, String::new(), String::new()).await;
            }
        }
    }
}

async fn down(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}

struct Login {
    node: Node,
    channels: HashMap<ChannelId, Channel<Msg>>,
}

impl Handler for Login {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let known = key.public_key.key_data() == self.node.client_key.key_data();
        Ok(if known { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let (Some(channel), Ok(line)) = (self.channels.remove(&id), std::str::from_utf8(data)) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let (node, line) = (self.node.clone(), line.to_owned());
        let (mut reads, writes) = channel.split();
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            // Ends with the input, and also when nobody reads it: then the rest is read and dropped.
            while let Some(message) = reads.wait().await {
                match message {
                    ChannelMsg::Data { data } => {
                        let _ = sender.send(data.to_vec()).await;
                    }
                    ChannelMsg::Eof | ChannelMsg::Close => break,
                    _ => {}
                }
            }
        });
        tokio::spawn(async move {
            node.faults.wait_while_exec_hangs().await;
            let run = move || exec::run(&node, &line, Input::from_channel(receiver));
            let Ok(output) = tokio::task::spawn_blocking(run).await else {
                return;
            };
            // The client may be gone; then there is nobody to tell.
            let _ = answer(&writes, output).await;
        });
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match self.channels.remove(&id) {
            Some(channel) if name == "sftp" => {
                session.channel_success(id)?;
                russh_sftp::server::run(channel.into_stream(), sftp::Sftp::new(&self.node)).await;
                Ok(())
            }
            _ => session.channel_failure(id),
        }
    }
}

async fn answer(channel: &ChannelWriteHalf<Msg>, output: exec::Output) -> Result<(), russh::Error> {
    if !output.stdout.is_empty() {
        channel.data_bytes(output.stdout).await?;
    }
    if !output.stderr.is_empty() {
        channel.extended_data_bytes(1, output.stderr).await?;
    }
    channel.exit_status(output.code).await?;
    channel.eof().await?;
    channel.close().await
}
