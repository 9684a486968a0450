//! The whole story in one command: a lab of simulated clusters and a Proxward server on loopback, walked through by a real MCP
//! client, then left running to be tried by hand.
#![forbid(unsafe_code)]

mod client;
mod scene;
mod story;

use std::process::ExitCode;

use clap::Parser;

use scene::Scene;

/// Starts the lab and the server, walks the story, and keeps serving.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Arguments {
    /// End after the story: with 0, or with the number of the step that failed.
    #[arg(long)]
    once: bool,

    /// Port to serve on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scene = match Scene::set(arguments.port).await {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("the demo could not be set up: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("A lab with two clusters is running, and Proxward in front of it at {}\n", scene.url());
    let told = story::tell(&scene).await;
    if let Err(failed) = &told {
        eprintln!("\nstep {} failed: {:#}", failed.step, failed.error);
    }
    if arguments.once {
        scene.leave().await;
        return match told {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => ExitCode::from(failed.step),
        };
    }
    println!("{}", scene.invitation());
    // Serving goes on until the person at the keyboard has seen enough; a failure to listen for Ctrl-C ends it as well.
    let _ = tokio::signal::ctrl_c().await;
    scene.leave().await;
    ExitCode::SUCCESS
}
