"""The fields of Kubernetes' API that the manifests use: a misspelt one is not among them. A new field of the
API is added here when a manifest needs it; scripts/check_deploy holds everything against the whole API."""

ANY = object()          # whatever is there
TEXT, NUMBER, FLAG = str, int, bool
QUANTITY = (str, int)

METADATA = {"name": TEXT, "namespace": TEXT, "labels": {str: TEXT}, "annotations": {str: TEXT}}
LABELS = {str: TEXT}
SELECTOR = {"matchLabels": LABELS}
HTTP = {"path": TEXT, "port": (str, int)}
PROBE = {"grpc": {"port": NUMBER, "service": TEXT}, "httpGet": HTTP, "periodSeconds": NUMBER,
         "timeoutSeconds": NUMBER, "failureThreshold": NUMBER}
RESOURCES = {"requests": {"cpu": QUANTITY, "memory": QUANTITY},
             "limits": {"cpu": QUANTITY, "memory": QUANTITY}}
CONTAINER = {
    "name": TEXT, "image": TEXT, "imagePullPolicy": TEXT, "command": [TEXT], "args": [TEXT],
    "env": [{"name": TEXT, "value": TEXT, "valueFrom": {"fieldRef": {"fieldPath": TEXT}}}],
    "ports": [{"name": TEXT, "containerPort": NUMBER, "protocol": TEXT}],
    "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE,
    "lifecycle": {"preStop": {"exec": {"command": [TEXT]}}},
    "resources": RESOURCES,
    "securityContext": {"allowPrivilegeEscalation": FLAG, "readOnlyRootFilesystem": FLAG,
                        "capabilities": {"drop": [TEXT]}},
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "readOnly": FLAG}],
}
POD = {
    "serviceAccountName": TEXT, "automountServiceAccountToken": FLAG, "restartPolicy": TEXT,
    "terminationGracePeriodSeconds": NUMBER,
    "securityContext": {"runAsNonRoot": FLAG, "runAsUser": NUMBER, "runAsGroup": NUMBER,
                        "fsGroup": NUMBER, "fsGroupChangePolicy": TEXT,
                        "seccompProfile": {"type": TEXT}},
    "topologySpreadConstraints": [{"maxSkew": NUMBER, "topologyKey": TEXT,
                                   "whenUnsatisfiable": TEXT, "labelSelector": SELECTOR}],
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": SELECTOR, "topologyKey": TEXT}]}},
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{"name": TEXT, "configMap": {"name": TEXT}, "secret": {"secretName": TEXT},
                 "persistentVolumeClaim": {"claimName": TEXT}, "emptyDir": {"sizeLimit": QUANTITY}}],
}
TEMPLATE = {"metadata": METADATA, "spec": POD}
CLAIM = {"accessModes": [TEXT], "storageClassName": TEXT,
         "resources": {"requests": {"storage": QUANTITY}}}
PEER = {"podSelector": SELECTOR, "namespaceSelector": SELECTOR}
POLICY_PORT = {"port": (str, int), "protocol": TEXT}
SCALING = {"stabilizationWindowSeconds": NUMBER,
           "policies": [{"type": TEXT, "value": NUMBER, "periodSeconds": NUMBER}]}
BUDGET = {"maxUnavailable": (str, int), "selector": SELECTOR}

KINDS = {
    ("v1", "ServiceAccount"): {"automountServiceAccountToken": FLAG},
    ("v1", "ConfigMap"): {"data": {str: TEXT}},
    ("v1", "PersistentVolumeClaim"): {"spec": CLAIM},
    ("v1", "Pod"): {"spec": POD},
    ("v1", "Service"): {"spec": {
        "clusterIP": TEXT, "publishNotReadyAddresses": FLAG, "selector": LABELS,
        "ports": [{"name": TEXT, "port": NUMBER, "targetPort": (str, int), "protocol": TEXT}]}},
    ("apps/v1", "StatefulSet"): {"spec": {
        "serviceName": TEXT, "replicas": NUMBER, "podManagementPolicy": TEXT, "selector": SELECTOR,
        "template": TEMPLATE,
        "volumeClaimTemplates": [{"metadata": METADATA, "spec": CLAIM}]}},
    ("apps/v1", "Deployment"): {"spec": {
        "replicas": NUMBER, "selector": SELECTOR, "template": TEMPLATE,
        "strategy": {"type": TEXT, "rollingUpdate": {"maxSurge": (str, int),
                                                     "maxUnavailable": (str, int)}}}},
    ("batch/v1", "Job"): {"spec": {"backoffLimit": NUMBER, "template": TEMPLATE}},
    ("policy/v1", "PodDisruptionBudget"): {"spec": BUDGET},
    ("policy/v1beta1", "PodDisruptionBudget"): {"spec": BUDGET},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"spec": {
        "podSelector": SELECTOR, "policyTypes": [TEXT],
        "ingress": [{"from": [PEER], "ports": [POLICY_PORT]}],
        "egress": [{"to": [PEER], "ports": [POLICY_PORT]}]}},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {"spec": {
        "scaleTargetRef": {"apiVersion": TEXT, "kind": TEXT, "name": TEXT},
        "minReplicas": NUMBER, "maxReplicas": NUMBER,
        "metrics": [{"type": TEXT, "resource": {"name": TEXT, "target": {
            "type": TEXT, "averageUtilization": NUMBER}},
            "pods": {"metric": {"name": TEXT}, "target": {"type": TEXT, "averageValue": QUANTITY}}}],
        "behavior": {"scaleUp": SCALING, "scaleDown": SCALING}}},
    ("monitoring.coreos.com/v1", "PodMonitor"): {"spec": {
        "jobLabel": TEXT, "selector": SELECTOR,
        "podMetricsEndpoints": [{"port": TEXT, "path": TEXT, "interval": TEXT,
                                 "relabelings": [{"sourceLabels": [TEXT], "targetLabel": TEXT,
                                                  "regex": TEXT, "replacement": TEXT}]}]}},
    ("monitoring.coreos.com/v1", "PrometheusRule"): {"spec": {"groups": [{
        "name": TEXT, "interval": TEXT, "rules": [{
            "record": TEXT, "alert": TEXT, "expr": TEXT, "for": TEXT, "labels": LABELS,
            "annotations": LABELS}]}]}},
    ("cert-manager.io/v1", "Issuer"): {"spec": {"selfSigned": ANY, "ca": {"secretName": TEXT}}},
    ("cert-manager.io/v1", "Certificate"): {"spec": {
        "secretName": TEXT, "commonName": TEXT, "isCA": FLAG, "dnsNames": [TEXT], "uris": [TEXT],
        "usages": [TEXT], "duration": TEXT, "renewBefore": TEXT,
        "privateKey": {"algorithm": TEXT, "size": NUMBER, "rotationPolicy": TEXT},
        "issuerRef": {"name": TEXT, "kind": TEXT}}},
}
# What Kubernetes 1.20 knows of them.
LEGACY_KINDS = {key for key in KINDS
                if key[0] in ("v1", "apps/v1", "batch/v1", "policy/v1beta1", "networking.k8s.io/v1")}


def problems_in(value, fields, where):
    if fields is ANY:
        return
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            yield f"{where}: an object is expected"
            return
        for key, inner in value.items():
            expected = fields.get(key, fields.get(str) if isinstance(key, str) else None)
            if expected is None:
                yield f"{where}.{key}: no such field"
            else:
                yield from problems_in(inner, expected, f"{where}.{key}")
    elif isinstance(fields, list):
        if not isinstance(value, list):
            yield f"{where}: a list is expected"
            return
        for i, inner in enumerate(value):
            yield from problems_in(inner, fields[0], f"{where}[{i}]")
    else:
        accepted = fields if isinstance(fields, tuple) else (fields,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            yield f"{where}: {value!r} is not of type {'/'.join(t.__name__ for t in accepted)}"


def check_fields(docs, kinds=KINDS):
    for doc in docs:
        key = (doc.get("apiVersion"), doc.get("kind"))
        name = f"{key[1]} {doc.get('metadata', {}).get('name')}"
        if key not in kinds:
            yield f"{name}: {key[0]} is not for it, or no kind of one namespace"
            continue
        fields = {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA, **KINDS[key]}
        yield from problems_in(doc, fields, name)
