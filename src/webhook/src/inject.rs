//! What becomes of a pod: the library, a cap and a folder for the journals, in each container that is to run under weir. Pure.
//!
//! | a container gets | if |
//! |---|---|
//! | the cap of the pod's annotation `weir/cap` | `weir/containers` names it; without that, it requests a GPU, or no container does |
//! | what a resource of a scheduler says (`nvidia.com/gpumem`) | it has a limit or a request of it |
//! | the default cap | it requests a GPU, and there is a default |
//!
//! A pod that asks for what cannot be done is refused: a typing mistake must not silently remove a cap. What is already there
//! is kept, so that a second call changes nothing (reinvocationPolicy).

use serde_json::{Map, Value, json};
use weir_settings::limit::CapSetting;
use weir_settings::size::{Amount, Human};

use crate::config::{Config, Journals, Library, Unit, VOLUME};
use crate::quantity;

/// Where things lie in a container.
const INSIDE: &str = "/opt/weir";
const JOURNALS: &str = "/var/lib/weir";
const JOURNAL_VOLUME: &str = "weir-journals";
/// What annotations of ours begin with, and those that there are.
const PREFIX: &str = "weir/";
const CAP: &str = "weir/cap";
const CONTAINERS: &str = "weir/containers";
const INJECTED: &str = "weir/injected";
/// A pod that wants to be recorded, and no cap.
const NO_CAP: &str = "none";
/// Resources of devices begin so.
const GPUS: &str = "nvidia.com/";
/// The file of the container's message, unless the pod says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// A cap as it is written, or none at all.
type Cap = Option<String>;

/// Changes a pod; why it is refused where it cannot be done. A pod that asks for nothing stays as it is.
pub(crate) fn inject(pod: &mut Value, config: &Config) -> Result<(), String> {
    let wanted = Wanted::of(pod)?;
    let spec = field(pod, "spec")?;
    let gpu_anywhere = containers(spec)?.any(|(_, one)| wants_gpu(one));
    let mut chosen: Vec<(String, Cap)> = Vec::new();
    let mut own =
        containers(spec)?.map(|(init, one)| Ok((init, name(one)?, one))).collect::<Result<Vec<_>, String>>()?;
    own.retain(|(init, name, _)| !(*init && config.fills(name)));
    for (init, name, container) in &own {
        let by_annotation = match &wanted.containers {
            Some(names) => names.iter().any(|one| one == name),
            None => wants_gpu(container) || (!gpu_anywhere && !init),
        };
        let resource = by_resource(container, config)?;
        let cap = match (&wanted.cap, resource) {
            (Some(Some(own)), Some(limit)) if by_annotation => Some(Some(lower(own, &limit, CAP)?)),
            (Some(cap), None) if by_annotation => Some(cap.clone()),
            (_, Some(resource)) => Some(Some(resource)),
            (_, None) if wants_gpu(container) => config.default_cap.clone().map(Some),
            (_, None) => None,
        };
        if let Some(cap) = cap {
            chosen.push(((*name).to_owned(), cap));
        }
    }
    for name in wanted.containers.iter().flatten() {
        if !own.iter().any(|(_, known, _)| known == name) {
            let known: Vec<&str> = own.iter().map(|(_, known, _)| *known).collect();
            return Err(format!("{CONTAINERS}: no container \"{name}\"; expected some of {}", known.join(", ")));
        }
    }
    if chosen.is_empty() {
        return Ok(());
    }
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut).ok_or("spec: not an object")?;
    let mut journals = false;
    let mut number = 0;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = name(container)?.to_owned();
            if list == "initContainers" && config.fills(&name) {
                continue;
            }
            if let Some((_, cap)) = chosen.iter().find(|(one, _)| *one == name) {
                let container = container.as_object_mut().ok_or("a container is not an object")?;
                journals |=
                    equip(container, cap.as_deref(), number).map_err(|why| format!("container {name}: {why}"))?;
            }
            number += 1;
        }
    }
    volumes(spec, config, journals)?;
    let names: Vec<&str> = chosen.iter().map(|(name, _)| name.as_str()).collect();
    let metadata = pod.get_mut("metadata").and_then(Value::as_object_mut).ok_or("metadata: not an object")?;
    object(metadata, "annotations")?.insert(INJECTED.into(), names.join(",").into());
    Ok(())
}

/// What the annotations say.
struct Wanted {
    cap: Option<Cap>,
    containers: Option<Vec<String>>,
}

impl Wanted {
    fn of(pod: &Value) -> Result<Self, String> {
        let mut own = Self { cap: None, containers: None };
        let annotations = match field(pod, "metadata")?.get("annotations") {
            None | Some(Value::Null) => return Ok(own),
            Some(annotations) => annotations.as_object().ok_or("metadata.annotations: not an object")?,
        };
        for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let value = value.as_str().ok_or_else(|| format!("{key}: not a text"))?.trim();
            match key.as_str() {
                CAP if value == NO_CAP => own.cap = Some(None),
                CAP => {
                    CapSetting::parse(value).map_err(|bad| format!("{CAP}={bad}, or {NO_CAP}"))?;
                    own.cap = Some(Some(value.to_owned()));
                }
                CONTAINERS => own.containers = Some(value.split(',').map(|name| name.trim().to_owned()).collect()),
                INJECTED => {}
                _ => return Err(format!("unknown annotation {key}; expected {CAP} or {CONTAINERS}")),
            }
        }
        if own.containers.is_some() && own.cap.is_none() {
            return Err(format!("{CONTAINERS} without {CAP}; expected a size like 8GiB, or {NO_CAP}"));
        }
        Ok(own)
    }
}

/// What a scheduler's resources say of the container's memory on each GPU.
fn by_resource(container: &Value, config: &Config) -> Result<Option<String>, String> {
    let mut found: Option<String> = None;
    for (resource, unit) in &config.resources {
        let Some(value) = resources(container).find(|(key, _)| *key == resource).map(|(_, value)| value) else {
            continue;
        };
        let bad = |why: &str| format!("{resource}: {value}: {why}");
        let number = quantity::integer(value).map_err(|why| bad(&why))?;
        if number == 0 {
            continue;
        }
        let cap = match unit {
            Unit::Bytes(size) => {
                format!("{}B", number.checked_mul(*size).ok_or_else(|| bad("more than 16 EiB"))?)
            }
            Unit::Percent if number > 100 => return Err(bad("more than 100 %")),
            Unit::Percent => format!("{number}%"),
        };
        if let Some(other) = found {
            return Err(format!("{resource}: another resource has said {other} already; expected one of them"));
        }
        found = Some(cap);
    }
    Ok(found)
}

/// A cap that the pod sets itself below its limit. One that is higher or cannot be compared is refused.
fn lower(own: &str, limit: &str, what: &str) -> Result<String, String> {
    if own.trim() == limit {
        return Ok(own.to_owned());
    }
    let bad = |why: &str| format!("{what}={own}: {why} the limit of {}", shown(limit));
    let (mine, most) = (
        CapSetting::parse(own).map_err(|bad| format!("{what}={bad}"))?,
        CapSetting::parse(limit).map_err(|bad| bad.to_string())?,
    );
    let (Some(most), []) = (most.default, most.named.as_slice()) else {
        return Err(bad("cannot be compared with"));
    };
    let Some(rest) = mine.default else { return Err(bad("has no cap for other devices, which is more than")) };
    for amount in mine.named.iter().map(|(_, amount)| *amount).chain([rest]) {
        match (amount, most) {
            (Amount::Bytes(amount), Amount::Bytes(most)) if amount <= most => {}
            (Amount::Share(amount), Amount::Share(most)) if amount <= most => {}
            (Amount::Bytes(_), Amount::Share(_)) | (Amount::Share(_), Amount::Bytes(_)) => {
                return Err(bad("cannot be compared with"));
            }
            _ => return Err(bad("is more than")),
        }
    }
    Ok(own.to_owned())
}

/// As people write it.
fn shown(cap: &str) -> String {
    match CapSetting::parse(cap) {
        Ok(CapSetting { default: Some(Amount::Bytes(bytes)), named, .. }) if named.is_empty() => {
            Human(bytes).to_string()
        }
        _ => cap.to_owned(),
    }
}

/// The variables and mounts of one container; whether it needs the volume of the journals.
fn equip(container: &mut Map<String, Value>, cap: Option<&str>, number: usize) -> Result<bool, String> {
    let termination = text(container.get("terminationMessagePath")).unwrap_or(TERMINATION_LOG).to_owned();
    let mut variables = Variables::of(container)?;
    variables.preload(&format!("{INSIDE}/libweir.so"))?;
    if let Some(cap) = cap {
        match variables.every("WEIR_CAP")? {
            own if own.is_empty() => variables.add("WEIR_CAP", cap),
            own => {
                for one in own {
                    lower(&one, cap, "WEIR_CAP")?;
                }
            }
        }
        if variables.every("WEIR_STRICT")?.iter().any(|value| !matches!(value.trim(), "1" | "")) {
            return Err("WEIR_STRICT: a job with a limit does not run without it; expected 1".into());
        }
    }
    // The container's own, by which its processes share the cap; $(…) needs its variable before it.
    if !variables.has("WEIR_GROUP") {
        variables.reference("KUBERNETES_POD_UID", "metadata.uid");
        variables.add("WEIR_GROUP", &format!("$(KUBERNETES_POD_UID)-{number}"));
    }
    // A label of the metrics.
    variables.reference("WEIR_POD", "metadata.name");
    if termination != TERMINATION_LOG && !variables.has("WEIR_TERMINATION_LOG") {
        variables.add("WEIR_TERMINATION_LOG", &termination);
    }
    let journals = match variables.every("WEIR_DIR")?.pop() {
        None => {
            variables.add("WEIR_DIR", JOURNALS);
            true
        }
        // Set by an earlier call, or by a pod that has a volume of its own.
        Some(dir) => dir == JOURNALS,
    };
    mount(container, VOLUME, INSIDE, true)?;
    if journals {
        mount(container, JOURNAL_VOLUME, JOURNALS, false)?;
    }
    Ok(journals)
}

/// The variables of a container. The last one of a name counts.
struct Variables<'c>(&'c mut Vec<Value>);

impl<'c> Variables<'c> {
    fn of(container: &'c mut Map<String, Value>) -> Result<Self, String> {
        let own = array(container, "env")?;
        if own.iter().any(|one| one["name"].as_str().is_none()) {
            return Err("env: a variable without a name".into());
        }
        Ok(Self(own))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|one| one["name"] == name)
    }

    /// All values of a name: what cannot be known here is refused.
    fn every(&self, name: &str) -> Result<Vec<String>, String> {
        let of = |one: &Value| match (one.get("value"), one.get("valueFrom")) {
            (_, Some(from)) if !from.is_null() => {
                Err(format!("{name}: its value comes from elsewhere (valueFrom); expected a value"))
            }
            (None | Some(Value::Null), _) => Ok(String::new()),
            (Some(value), _) => value.as_str().map(str::to_owned).ok_or_else(|| format!("{name}: not a text")),
        };
        self.0.iter().filter(|one| one["name"] == name).map(of).collect()
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push(json!({"name": name, "value": value}));
    }

    fn reference(&mut self, name: &str, path: &str) {
        if !self.has(name) {
            self.0.push(json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
        }
    }

    /// Behind what is preloaded already.
    fn preload(&mut self, library: &str) -> Result<(), String> {
        match self.every("LD_PRELOAD")?.pop() {
            None => self.add("LD_PRELOAD", library),
            Some(own) if own.split([':', ' ']).any(|file| file == library) => {}
            Some(own) => {
                let value = if own.is_empty() { library.to_owned() } else { format!("{own}:{library}") };
                if let Some(last) = self.0.iter_mut().rfind(|one| one["name"] == "LD_PRELOAD") {
                    last["value"] = value.into();
                }
            }
        }
        Ok(())
    }
}

fn mount(container: &mut Map<String, Value>, volume: &str, path: &str, read_only: bool) -> Result<(), String> {
    let mounts = array(container, "volumeMounts")?;
    let at = |one: &Value| text(one.get("mountPath")).map(|at| at.trim_end_matches('/') == path);
    if let Some(other) = mounts.iter().find(|one| at(one) == Some(true)) {
        let same = other["name"] == volume
            && other.get("subPath").is_none()
            && other["readOnly"].as_bool().unwrap_or(false) == read_only;
        return if same { Ok(()) } else { Err(format!("something else is mounted at {path}")) };
    }
    let mut mount = json!({"name": volume, "mountPath": path});
    if read_only {
        mount["readOnly"] = true.into();
    }
    mounts.push(mount);
    Ok(())
}

/// The pod's volumes, and the container that fills the library's where no node has it.
fn volumes(spec: &mut Map<String, Value>, config: &Config, journals: bool) -> Result<(), String> {
    let host = |path: &str| json!({"hostPath": {"path": path, "type": "Directory"}});
    let library = match &config.library {
        Library::Host(path) => host(path),
        Library::Image(_) => json!({"emptyDir": {}}),
    };
    volume(spec, VOLUME, library)?;
    if journals {
        let source = match &config.journals {
            Journals::Host(path) => host(path),
            Journals::Claim(name) => json!({"persistentVolumeClaim": {"claimName": name}}),
            Journals::Empty => json!({"emptyDir": {}}),
        };
        volume(spec, JOURNAL_VOLUME, source)?;
    }
    if let Library::Image(image) = &config.library {
        let containers = array(spec, "initContainers")?;
        let fills = json!({
            "name": VOLUME,
            "image": image,
            "command": ["cp", "/usr/lib/weir/libweir.so", format!("{INSIDE}/")],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": VOLUME, "mountPath": INSIDE}],
        });
        match containers.iter().find(|one| one["name"] == VOLUME) {
            // Before others, which may need the library.
            None => containers.insert(0, fills),
            Some(other) if has_all_of(other, &fills) => {}
            Some(_) => return Err(format!("the pod has another container named {VOLUME}")),
        }
    }
    Ok(())
}

fn volume(spec: &mut Map<String, Value>, name: &str, source: Value) -> Result<(), String> {
    let volumes = array(spec, "volumes")?;
    let mut made = source;
    made["name"] = name.into();
    match volumes.iter().find(|one| one["name"] == name) {
        None => volumes.push(made),
        Some(other) if has_all_of(other, &made) => {}
        Some(_) => return Err(format!("the pod has another volume named {name}")),
    }
    Ok(())
}

/// Whether a part of a pod is what an earlier call made of it; the API server adds defaults.
fn has_all_of(found: &Value, made: &Value) -> bool {
    match (found, made) {
        (Value::Object(found), Value::Object(made)) => {
            made.iter().all(|(key, made)| found.get(key).is_some_and(|found| has_all_of(found, made)))
        }
        (Value::Array(found), Value::Array(made)) if found.len() >= made.len() => {
            found.iter().zip(made).all(|(found, made)| has_all_of(found, made))
        }
        _ => found == made,
    }
}

/// All containers, with whether each is an init container, in the order of their start.
fn containers(spec: &Value) -> Result<impl Iterator<Item = (bool, &Value)>, String> {
    let list = |key: &str| match spec.get(key) {
        None | Some(Value::Null) => Ok::<_, String>(Vec::new()),
        Some(list) => Ok(list.as_array().ok_or_else(|| format!("spec.{key}: not a list"))?.iter().collect()),
    };
    let (init, rest) = (list("initContainers")?, list("containers")?);
    Ok(init.into_iter().map(|one| (true, one)).chain(rest.into_iter().map(|one| (false, one))))
}

fn name(container: &Value) -> Result<&str, String> {
    text(container.get("name")).ok_or_else(|| "a container without a name".into())
}

/// Limits of a container, then its requests.
fn resources(container: &Value) -> impl Iterator<Item = (&String, &Value)> {
    ["limits", "requests"].into_iter().filter_map(|kind| container["resources"][kind].as_object()).flatten()
}

fn wants_gpu(container: &Value) -> bool {
    resources(container).any(|(key, value)| key.starts_with(GPUS) && quantity::integer(value) != Ok(0))
}

fn text(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str)
}

fn field<'v>(value: &'v Value, name: &str) -> Result<&'v Value, String> {
    value.get(name).filter(|field| field.is_object()).ok_or_else(|| format!("{name}: not an object"))
}

/// A list in an object, made where it is missing.
fn array<'o>(object: &'o mut Map<String, Value>, key: &str) -> Result<&'o mut Vec<Value>, String> {
    let place = object.entry(key).or_insert(Value::Null);
    if place.is_null() {
        *place = json!([]);
    }
    place.as_array_mut().ok_or_else(|| format!("{key}: not a list"))
}

/// An object in an object, likewise.
fn object<'o>(object: &'o mut Map<String, Value>, key: &str) -> Result<&'o mut Map<String, Value>, String> {
    let place = object.entry(key).or_insert(Value::Null);
    if place.is_null() {
        *place = json!({});
    }
    place.as_object_mut().ok_or_else(|| format!("{key}: not an object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            library: Library::Host(INSIDE.into()),
            journals: Journals::Host(JOURNALS.into()),
            resources: vec![
                ("nvidia.com/gpumem".into(), Unit::Bytes(1 << 20)),
                ("nvidia.com/gpumem-percentage".into(), Unit::Percent),
            ],
            default_cap: None,
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "both are made in the call")]
    fn pod(annotations: Value, containers: Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
    }

    fn injected(mut pod: Value, config: &Config) -> Result<Value, String> {
        inject(&mut pod, config)?;
        let once = pod.clone();
        inject(&mut pod, config)?;
        assert_eq!(once, pod, "a second call changes nothing");
        Ok(pod)
    }

    fn variable(pod: &Value, at: usize, name: &str) -> Value {
        let env = pod["spec"]["containers"][at]["env"].as_array();
        env.into_iter().flatten().rfind(|one| one["name"] == name).map(|one| one["value"].clone()).unwrap_or_default()
    }

    fn cap(pod: Value) -> Result<Value, String> {
        injected(pod, &config()).map(|pod| variable(&pod, 0, "WEIR_CAP"))
    }

    #[test]
    fn a_pod_that_asks_for_nothing_stays() {
        for quiet in [
            pod(json!(null), json!([{"name": "a"}])),
            pod(json!({"other/cap": "8GiB"}), json!([{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}])),
            pod(json!({}), json!([{"name": "a", "resources": {"limits": {"nvidia.com/gpumem": "0"}}}])),
        ] {
            assert_eq!(injected(quiet.clone(), &config()), Ok(quiet));
        }
    }

    #[test]
    fn an_annotation_is_for_the_containers_with_a_gpu_or_for_all_or_for_those_it_names() {
        let one = |name: &str, gpu: u32| json!({"name": name, "resources": {"limits": {"nvidia.com/gpu": gpu}}});
        let who = |annotations: Value, containers: Value| {
            injected(pod(annotations, containers), &config())
                .map(|pod| pod["metadata"]["annotations"][INJECTED].clone())
        };
        let cap = json!({CAP: "8GiB"});
        assert_eq!(who(cap.clone(), json!([one("a", 0), one("b", 1)])), Ok(json!("b")));
        assert_eq!(who(cap, json!([one("a", 0), one("b", 0)])), Ok(json!("a,b")));
        let named = json!({CAP: "none", CONTAINERS: "a"});
        assert_eq!(who(named.clone(), json!([one("a", 0), one("b", 1)])), Ok(json!("a")));
        assert!(who(named, json!([one("c", 1)])).unwrap_err().contains("no container \"a\"; expected some of c"));
    }

    #[test]
    fn a_resource_is_a_limit_that_the_pod_may_only_lower() {
        let with = |resource: &str, value: Value, more: Value| {
            let mut container = json!({"name": "a", "resources": {"requests": {resource: value}}});
            if !more.is_null() {
                container["env"] = json!([{"name": "WEIR_CAP", "value": more}]);
            }
            json!([container])
        };
        let memory = |value: Value, own: Value| cap(pod(json!({}), with("nvidia.com/gpumem", value, own)));
        assert_eq!(memory(json!(3000), json!(null)), Ok(json!("3145728000B")));
        assert_eq!(memory(json!("3k"), json!(null)), Ok(json!("3145728000B")));
        assert_eq!(memory(json!(3000), json!("1GiB")), Ok(json!("1GiB")));
        assert!(memory(json!(3000), json!("3GiB")).unwrap_err().contains("is more than the limit of 2.93 GiB"));
        assert!(memory(json!(3000), json!("10%")).unwrap_err().contains("cannot be compared"));
        assert!(memory(json!(3000), json!("0=1GiB")).unwrap_err().contains("other devices"));
        assert!(memory(json!("many"), json!(null)).unwrap_err().contains("nvidia.com/gpumem"));
        assert!(memory(json!("18446744073709551615"), json!(null)).unwrap_err().contains("16 EiB"));
        let percent = |value: Value| cap(pod(json!({}), with("nvidia.com/gpumem-percentage", value, json!(null))));
        assert_eq!(percent(json!("25")), Ok(json!("25%")));
        assert!(percent(json!("125")).unwrap_err().contains("more than 100 %"));
        let both =
            |annotation: &str| cap(pod(json!({CAP: annotation}), with("nvidia.com/gpumem", json!(1024), json!(null))));
        assert_eq!(both("512MiB"), Ok(json!("512MiB")));
        assert!(both("2GiB").unwrap_err().contains("weir/cap=2GiB: is more than the limit of 1.00 GiB"));
        assert_eq!(both("none"), Ok(json!("1073741824B")), "no cap of its own");
    }

    #[test]
    fn the_last_variable_counts_and_every_one_is_compared() {
        let with = |env: Value| cap(pod(json!({CAP: "8GiB"}), json!([{"name": "a", "env": env}])));
        let own = |value: &str| json!({"name": "WEIR_CAP", "value": value});
        assert_eq!(with(json!([own("4GiB"), own("2GiB")])), Ok(json!("2GiB")));
        assert!(with(json!([own("4GiB"), own("16GiB")])).unwrap_err().contains("container a: WEIR_CAP=16GiB"));
        assert!(with(json!([own("")])).is_err(), "an empty one would hide the cap");
        let elsewhere = json!({"name": "WEIR_CAP", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}});
        assert!(with(json!([elsewhere])).unwrap_err().contains("valueFrom"));
        assert!(with(json!([{"name": "WEIR_STRICT", "value": "0"}])).unwrap_err().contains("WEIR_STRICT"));
        assert!(with(json!([{"value": "0"}])).unwrap_err().contains("without a name"));
    }

    #[test]
    fn the_library_is_preloaded_behind_others() {
        let with = |env: Value| {
            let made = injected(pod(json!({CAP: "8GiB"}), json!([{"name": "a", "env": env}])), &config());
            made.map(|pod| variable(&pod, 0, "LD_PRELOAD"))
        };
        assert_eq!(with(json!(null)), Ok(json!("/opt/weir/libweir.so")));
        assert_eq!(with(json!([{"name": "LD_PRELOAD"}])), Ok(json!("/opt/weir/libweir.so")));
        assert_eq!(with(json!([{"name": "LD_PRELOAD", "value": "/x.so"}])), Ok(json!("/x.so:/opt/weir/libweir.so")));
        assert!(with(json!([{"name": "LD_PRELOAD", "valueFrom": {"fieldRef": {}}}])).is_err());
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let one = json!({"name": "a", "volumeMounts": [{"name": "x", "mountPath": "/opt/weir/"}]});
        let mounted = cap(pod(json!({CAP: "8GiB"}), json!([one])));
        assert!(mounted.unwrap_err().contains("something else is mounted at /opt/weir"));
        let mut other = pod(json!({CAP: "8GiB"}), json!([{"name": "a"}]));
        other["spec"]["volumes"] = json!([{"name": "weir", "configMap": {"name": "x"}}]);
        assert!(cap(other.clone()).unwrap_err().contains("another volume named weir"));
        other["spec"]["volumes"] = json!([{"name": "weir", "hostPath": {"path": "/tmp/mine", "type": "Directory"}}]);
        assert!(cap(other).unwrap_err().contains("another volume named weir"), "a library of the pod's own");
        let writes = json!({"name": "a", "volumeMounts": [{"name": "weir", "mountPath": "/opt/weir"}]});
        assert!(cap(pod(json!({CAP: "8GiB"}), json!([writes]))).is_err());
        for (annotations, part) in [
            (json!({CAP: "8"}), "did you mean 8GiB"),
            (json!({CAP: 8}), "not a text"),
            (json!({"weir/cpa": "8GiB"}), "unknown annotation weir/cpa"),
            (json!({CONTAINERS: "a"}), "without weir/cap"),
            (json!([]), "not an object"),
        ] {
            assert!(cap(pod(annotations, json!([{"name": "a"}]))).unwrap_err().contains(part), "{part}");
        }
        let annotated = |spec: Value| json!({"metadata": {"annotations": {CAP: "8GiB"}}, "spec": spec});
        for spec in [
            json!(null),
            json!([]),
            json!({"containers": {}}),
            json!({"containers": [1]}),
            json!({"containers": [{}]}),
            json!({"containers": [{"name": 1}]}),
            json!({"containers": [{"name": "a", "env": "x"}]}),
            json!({"containers": [{"name": "a", "volumeMounts": 7}]}),
            json!({"containers": [{"name": "a"}], "volumes": "x"}),
        ] {
            assert!(cap(annotated(spec.clone())).is_err(), "{spec}");
        }
        assert!(cap(json!(7)).is_err());
    }

    #[test]
    fn a_default_is_for_who_says_nothing_and_has_a_gpu() {
        let config = Config { default_cap: Some("50%".into()), ..config() };
        let gpu = json!({"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}});
        let made = |annotations: Value, one: Value| {
            injected(pod(annotations, json!([one])), &config).map(|pod| variable(&pod, 0, "WEIR_CAP"))
        };
        assert_eq!(made(json!({}), gpu.clone()), Ok(json!("50%")));
        assert_eq!(made(json!({CAP: "8GiB"}), gpu), Ok(json!("8GiB")));
        assert_eq!(made(json!({}), json!({"name": "a"})), Ok(json!(null)));
    }

    #[test]
    fn an_image_fills_the_volume_before_all_others() {
        let config = Config { library: Library::Image("r/weir:1".into()), journals: Journals::Empty, ..config() };
        let mut asking = pod(json!({CAP: "8GiB"}), json!([{"name": "a", "terminationMessagePath": "/tmp/why"}]));
        asking["spec"]["initContainers"] = json!([{"name": "first"}]);
        let made = injected(asking, &config).unwrap();
        let names: Vec<_> =
            made["spec"]["initContainers"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["weir", "first"]);
        assert_eq!(made["spec"]["volumes"][0], json!({"name": "weir", "emptyDir": {}}));
        assert_eq!(variable(&made, 0, "WEIR_TERMINATION_LOG"), "/tmp/why");
        assert_eq!(variable(&made, 0, "WEIR_GROUP"), "$(KUBERNETES_POD_UID)-1");
    }
}
