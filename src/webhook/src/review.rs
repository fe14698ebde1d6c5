//! The API server's question and the answer to it: an AdmissionReview of admission.k8s.io/v1 each, the change as a JSON patch
//! (RFC 6902). Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::Config;
use crate::inject::inject;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The answer to a review, and a line for the log; why it is none.
pub(crate) fn answer(body: &[u8], config: &Config) -> Result<(Value, Option<String>), String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    if review["apiVersion"] != VERSION || review["kind"] != KIND {
        return Err(format!("expected an {KIND} of {VERSION}"));
    }
    let request = &review["request"];
    let uid = request["uid"].as_str().filter(|uid| !uid.is_empty()).ok_or("a request without a uid")?;
    let mut response = json!({"uid": uid, "allowed": true});
    let mut line = None;
    if asks_about_a_pod(request) {
        let before = &request["object"];
        let mut after = before.clone();
        let name = ["name", "generateName"].iter().find_map(|key| before["metadata"][key].as_str()).unwrap_or("?");
        // Texts come from a stranger: one line, whatever is in them.
        let name = format!("pod {:?} in {:?}", name, request["namespace"].as_str().unwrap_or("?"));
        match inject(&mut after, config) {
            Err(why) => {
                response["allowed"] = false.into();
                response["status"] = json!({"code": 422, "reason": "Invalid", "message": format!("weir: {why}")});
                line = Some(format!("{name} is refused: {why:?}"));
            }
            Ok(()) if after == *before => {}
            Ok(()) => {
                let patch = json_patch::diff(before, &after);
                let patch = serde_json::to_vec(&patch).map_err(|error| error.to_string())?;
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(patch).into();
                line = Some(format!("{name} runs under weir"));
            }
        }
    }
    Ok((json!({"apiVersion": VERSION, "kind": KIND, "response": response}), line))
}

/// Everything else that a registration may send here is let through as it is.
fn asks_about_a_pod(request: &Value) -> bool {
    let kind = &request["kind"];
    let pod = kind["group"].as_str().unwrap_or_default().is_empty() && kind["version"] == "v1" && kind["kind"] == "Pod";
    let part = request["subResource"].as_str().is_some_and(|part| !part.is_empty());
    pod && request["operation"] == "CREATE" && !part
}
