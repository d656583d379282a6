‰
"serveÖ
.
xPlaceholder*
dtype0*
shape:

vVarHandleOp*
dtype0

rReadVariableOpv

yAddV2xr
$
nConst*
valueBBkey

q	RestoreV2nnn

asAssignVariableOpvq*
serving_default

o
y:0as