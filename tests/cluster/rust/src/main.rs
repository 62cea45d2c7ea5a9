//! A writer that asks its controller now and then, with Pravega's own client: `rolling-peer HOST:PORT SCOPE STREAM`.
//!
//! It says what `java/RollingPeer.java` says: "ready", "ack COUNT MILLISECONDS" for each flush, "call MILLISECONDS"
//! for each request to a controller, "error TEXT", and after a line on its standard input "end COUNT".

use pravega_client::client_factory::ClientFactory;
use pravega_client_config::ClientConfigBuilder;
use pravega_client_shared::{
    PravegaNodeUri, Retention, ScaleType, Scaling, Scope, ScopedStream, Stream, StreamConfiguration,
};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: u64 = 7;

fn say(line: String) {
    let mut out = std::io::stdout();
    writeln!(out, "{}", line.replace('\n', " ")).and_then(|_| out.flush()).expect("standard output is open");
}

fn configuration(scope: &Scope, stream: String, segments: i32) -> StreamConfiguration {
    StreamConfiguration {
        scoped_stream: ScopedStream {
            scope: scope.clone(),
            stream: Stream::from(stream),
        },
        scaling: Scaling {
            scale_type: ScaleType::FixedNumSegments,
            target_rate: 0,
            scale_factor: 0,
            min_num_segments: segments,
        },
        retention: Retention::default(),
        tags: None,
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [address, scope, stream] = given.as_slice() else {
        eprintln!("rolling-peer HOST:PORT SCOPE STREAM");
        std::process::exit(2);
    };
    let ending = Arc::new(AtomicBool::new(false));
    let heard = ending.clone();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        heard.store(true, Ordering::Relaxed);
    });
    let config = ClientConfigBuilder::default()
        .controller_uri(PravegaNodeUri::from(address.as_str()))
        .build()
        .expect("an address");
    let factory = ClientFactory::new(config);
    let scope = Scope { name: scope.clone() };
    let controller = factory.controller_client();
    factory.runtime().block_on(async {
        controller.create_scope(&scope).await.expect("a scope");
        let written = configuration(&scope, stream.clone(), 4);
        controller.create_stream(&written).await.expect("a stream");
        let mut writer = factory.create_event_writer(written.scoped_stream.clone());
        say("ready".to_string());
        let mut turn = 0;
        while !ending.load(Ordering::Relaxed) {
            let began = Instant::now();
            let mut waiting = Vec::new();
            for key in 0..KEYS {
                let event = format!("{key}:{turn}").into_bytes();
                waiting.push(writer.write_event_by_routing_key(key.to_string(), event).await);
            }
            let mut failure = None;
            for each in waiting {
                match each.await {
                    Ok(Ok(())) => (),
                    Ok(Err(error)) => failure = Some(format!("{error}")),
                    Err(error) => failure = Some(format!("{error}")),
                }
            }
            if let Some(error) = failure {
                say(format!("error {error}"));
                break; // which of them are in the stream is unknown
            }
            say(format!("ack {} {:.1}", (turn + 1) * KEYS, began.elapsed().as_secs_f64() * 1000.0));
            if turn % 10 == 0 {
                let began = Instant::now();
                let more = configuration(&scope, format!("{stream}-{}", turn % 50), 1);
                let asked = async {
                    controller.create_stream(&more).await?;
                    controller.check_stream_exists(&more.scoped_stream).await
                };
                match asked.await {
                    Ok(_) => say(format!("call {:.1}", began.elapsed().as_secs_f64() * 1000.0)),
                    Err(error) => say(format!("error {error:?}")),
                }
            }
            turn += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        say(format!("end {}", turn * KEYS));
        std::process::exit(0);
    });
}
